package ring

import "slices"

// backlog keeps the stores of a tunnel that found no room among its frames, in their
// order. Of each word that is published it keeps the latest value only, at the place of
// that one: a word that is published again and again takes no more memory, and nothing
// that was published after its first value is delayed behind its last. What is not a
// word, or comes only once, follows in its order. So a backlog is bounded by the number
// of words that the layers above have, and by the one record that each connection
// may have begun: data asks for room first, see [Peer.TryWrite].
//
// It is memory only; the tunnel's mu guards it.
type backlog struct {
	stores   []lateStore
	first    int             // of stores, the oldest
	replaced int             // how many of them are
	places   map[wordKey]int // of the words in stores, by index
}

// lateStore is one store. That of a word has no data. The zero lateStore is one that a
// later value has replaced.
type lateStore struct {
	kind entryKind
	off  int
	n    int // bytes of a word
	v    uint64
	data []byte
}

// wordKey names a word.
type wordKey struct {
	kind entryKind
	off  int
}

func (b *backlog) empty() bool { return b.first == len(b.stores) }

// bytes adds p, which it copies, to what is to be stored at off.
func (b *backlog) bytes(off int, p []byte) {
	if len(p) > 0 {
		b.stores = append(b.stores, lateStore{kind: entryData, off: off, data: slices.Clone(p)})
	}
}

// word adds a word, and drops an older value of it.
func (b *backlog) word(kind entryKind, off int, v uint64, n int) {
	if b.places == nil {
		b.places = map[wordKey]int{}
	}
	key := wordKey{kind, off}
	if i, ok := b.places[key]; ok {
		b.stores[i] = lateStore{}
		b.replaced++
		b.compact()
	}
	b.places[key] = len(b.stores)
	b.stores = append(b.stores, lateStore{kind: kind, off: off, n: n, v: v})
}

// compact takes out what was replaced when that is a third of it.
func (b *backlog) compact() {
	const few = 64
	if b.replaced < few || 3*b.replaced < len(b.stores)-b.first {
		return
	}
	b.stores = slices.DeleteFunc(b.stores[b.first:], func(s lateStore) bool { return s.kind == 0 })
	b.first, b.replaced = 0, 0
	for i, s := range b.stores {
		if s.kind != entryData {
			b.places[wordKey{s.kind, s.off}] = i
		}
	}
}

// next is the oldest store, which pop takes out. There must be one.
func (b *backlog) next() *lateStore { return &b.stores[b.first] }

func (b *backlog) pop() {
	switch s := b.next(); s.kind {
	case 0:
		b.replaced--
	case entryData:
	default:
		delete(b.places, wordKey{s.kind, s.off})
	}
	b.stores[b.first] = lateStore{}
	b.first++
	if b.empty() {
		b.clear()
	}
}

func (b *backlog) clear() { *b = backlog{} }
