package tunnel

import (
	"slices"

	"github.com/ntbnet/ntbnet/internal/link"
)

// backlog keeps the stores of a tunnel that found no room among its frames, in their
// order. Of a word of which only the latest value counts it keeps that one alone, at the
// place where that was published: a word that is published again and again takes no more
// memory. What came between an older value and that one arrives before both then. Nobody
// needs the older one there: what announces a word follows each change. What else is
// stored comes only once for each connection and message. So a backlog is bounded by the words that the layers above have,
// and by the one record that each connection may have begun: data asks for room first, see
// [link.Frames].
//
// This holds with an honest peer. Another peer can make this process store again and again,
// for example a move for each queue that it grants, and acknowledge nothing: see maxLate.
//
// It only manages memory. The tunnel's mu guards it.
type backlog struct {
	stores   []lateStore
	first    int         // index of the oldest in stores
	replaced int         // number of replaced ones in stores
	places   map[int]int // by offset, the index in stores of the word whose latest value counts
}

// maxLate is how many stores may be kept aside until the tunnel ends. Those of which only
// the latest value counts are not included. A window has slots for at most MaxSlots
// connections, and each makes at most a dozen such stores.
const maxLate = 16 * link.MaxSlots

// lateStore is one store. The store of a word has no data. The zero lateStore is one
// that a later value has replaced.
type lateStore struct {
	kind entryKind
	off  int
	n    int // bytes of a word
	v    uint64
	data []byte
	// latest means that a later value of the word replaces this one.
	latest bool
}

func (b *backlog) empty() bool { return b.first == len(b.stores) }

// full reports whether more stores wait than an honest peer causes.
func (b *backlog) full() bool {
	return len(b.stores)-b.first-b.replaced-len(b.places) > maxLate
}

// bytes adds a copy of p, to be stored at off.
func (b *backlog) bytes(off int, p []byte) {
	if len(p) > 0 {
		b.stores = append(b.stores, lateStore{kind: entryData, off: off, data: slices.Clone(p)})
	}
}

// word adds a word.
func (b *backlog) word(kind entryKind, off int, v uint64, n int) {
	b.stores = append(b.stores, lateStore{kind: kind, off: off, n: n, v: v})
}

// latest adds a published word, and drops an older value of it.
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

// tidy removes replaced stores, and the places of those that pop has removed, when they
// are a third of all.
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

// next returns the oldest store, which pop removes. There must be one.
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
