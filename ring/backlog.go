package ring

import "slices"

// backlog keeps the stores of a tunnel that found no room among its frames, in their
// order. Of a word of which only the latest value counts it keeps that one alone, at the
// place where that was published: a word that is published again and again takes no more
// memory. What else is stored comes only once for each connection and message. So a backlog
// is bounded by the words that the layers above have, and by the one record that each
// connection may have begun: data asks for room first, see [Peer.TryWrite]. That holds with
// an honest peer. Another one can have this node store again and again, a move for each
// queue that it grants say, and acknowledge nothing: see maxLate.
//
// It is memory only; the tunnel's mu guards it.
type backlog struct {
	stores   []lateStore
	first    int         // of stores, the oldest
	replaced int         // how many of them are
	places   map[int]int // of the words in stores whose latest value counts, by index
}

// maxLate is how many stores, but for those of which only the latest value counts, may be
// kept aside until the tunnel ends. Each of the most connections that a window has slots for
// makes a dozen at the most.
const maxLate = 16 * maxSlots

// lateStore is one store. That of a word has no data. The zero lateStore is one that a
// later value has replaced.
type lateStore struct {
	kind entryKind
	off  int
	n    int // bytes of a word
	v    uint64
	data []byte
	// latest: a later value of the word takes this one's place.
	latest bool
}

func (b *backlog) empty() bool { return b.first == len(b.stores) }

// full reports whether there are more stores than an honest peer leaves waiting.
func (b *backlog) full() bool {
	return len(b.stores)-b.first-b.replaced-len(b.places) > maxLate
}

// bytes adds p, which it copies, to what is to be stored at off.
func (b *backlog) bytes(off int, p []byte) {
	if len(p) > 0 {
		b.stores = append(b.stores, lateStore{kind: entryData, off: off, data: slices.Clone(p)})
	}
}

// word adds a word.
func (b *backlog) word(kind entryKind, off int, v uint64, n int) {
	b.stores = append(b.stores, lateStore{kind: kind, off: off, n: n, v: v})
}

// latest adds a word that is published, and drops an older value of it.
func (b *backlog) latest(off int, v uint64, n int) {
	if b.places == nil {
		b.places = map[int]int{}
	}
	if i, ok := b.places[off]; ok {
		b.stores[i] = lateStore{}
		b.replaced++
		b.tidy()
	}
	b.places[off] = len(b.stores)
	b.stores = append(b.stores, lateStore{kind: entryPublish, off: off, n: n, v: v, latest: true})
}

// tidy takes out what was replaced, and the places of what pop has taken, when that is a
// third of all.
func (b *backlog) tidy() {
	const few = 64
	if gone := b.first + b.replaced; gone < few || 3*gone < len(b.stores) {
		return
	}
	b.stores = slices.DeleteFunc(b.stores, func(s lateStore) bool { return s.kind == 0 })
	b.first, b.replaced = 0, 0
	for i, s := range b.stores {
		if s.latest {
			b.places[s.off] = i
		}
	}
}

// next is the oldest store, which pop takes out. There must be one.
func (b *backlog) next() *lateStore { return &b.stores[b.first] }

func (b *backlog) pop() {
	switch s := b.next(); {
	case s.kind == 0:
		b.replaced--
	case s.latest:
		delete(b.places, s.off)
	}
	b.stores[b.first] = lateStore{}
	b.first++
	if b.empty() {
		b.clear()
		return
	}
	b.tidy()
}

func (b *backlog) clear() { *b = backlog{} }
