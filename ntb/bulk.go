package ntb

import "time"

// Bulk writes pieces of data to windows: by ordinary stores, or by non-temporal ones where it finds
// those much faster. One goroutine at a time uses it. The zero Bulk is ready for use.
//
// An ordinary store fetches the cache line first, from the cache of the processor that has read
// it, and the reader then fetches it from this one's. Between processors that have a cache in
// common that is the faster way. Between others each line is slow, either way. Non-temporal
// stores go to memory and fetch nothing, and the reader's processor reads memory ahead. Which
// processors they are may change at any time, and a virtual machine is not told. So
// Bulk takes the time of some of its stores, and tries the other kind from time to time: a single
// non-temporal store, or a stretch of ordinary ones, since a single one finds no line in a near cache.
type Bulk struct {
	streamed uint64 // pieces stored by non-temporal stores
	pieces   uint32 // that could have been
	chosen   storeKind
	costs    [2]recentCosts // by kind; of ordinary stores since they were chosen
	began    uint32         // pieces when the kind was chosen
	stint    uint32         // for how many pieces non-temporal stores are chosen
}

// storeKind is a kind of store.
type storeKind uint8

const (
	ordinary    storeKind = iota
	nonTemporal           // pays for large pieces alone, since they are waited for
)

const (
	// leastStreamed is the smallest piece, in bytes, for which Bulk has a choice.
	leastStreamed = 4 << 10
	// Of sampleEvery pieces, one is timed: an odd number, since large and small pieces may take turns.
	// While ordinary stores are chosen, of otherEvery of those one is stored by a non-temporal one.
	sampleEvery = 17
	otherEvery  = 16
	// Ordinary stores are given up when they take slow times as long as non-temporal ones: what
	// was stored by those takes the reader longer, if it has a cache in common.
	slow = 3
	// They are tried again after a stint of leastStint pieces. One that is given up within soon
	// pieces makes the next stint twice as long, up to mostStint.
	leastStint = 1 << 10
	mostStint  = 1 << 16
	soon       = 64 * sampleEvery
)

// recentCosts are the times of the last samples of a kind of store, in picoseconds for each byte.
type recentCosts struct {
	last [8]uint32
	n    uint32
}

func (c *recentCosts) add(n int, d time.Duration) {
	cost := uint64(max(d, 0)) * 1000 / uint64(n)
	c.last[c.n%uint32(len(c.last))] = uint32(min(cost, 1<<28))
	c.n++
}

// known reports whether there are enough samples.
func (c *recentCosts) known() bool { return c.n >= uint32(len(c.last)) }

// sum returns the sum of the samples but the longest, during which the system may have stopped this
// thread. Processes that take turns may be near and far in turn, so none of the others is more true.
func (c *recentCosts) sum() (sum uint32) {
	most := uint32(0)
	for _, cost := range c.last {
		sum += cost
		most = max(most, cost)
	}
	return sum - most
}

// Streamed returns how many pieces were stored by non-temporal stores.
func (b *Bulk) Streamed() uint64 { return b.streamed }

// Write is [Window.Write] of p at off.
func (b *Bulk) Write(w *Window, off int, p []byte) {
	if len(p) < leastStreamed || !w.Streams() {
		w.Write(off, p)
		return
	}
	b.next()
	if b.pieces%sampleEvery != 0 {
		b.store(b.chosen, w, off, p)
		return
	}
	kind := b.sample()
	start := time.Now()
	b.store(kind, w, off, p)
	b.took(kind, len(p), time.Since(start))
}

// store stores p by stores of that kind.
func (b *Bulk) store(kind storeKind, w *Window, off int, p []byte) {
	if kind == ordinary {
		w.Write(off, p)
		return
	}
	b.streamed++
	w.Stream(off, p)
}

// next counts a piece, and ends a stint.
func (b *Bulk) next() {
	b.pieces++
	if b.chosen == nonTemporal && b.pieces-b.began >= b.stint {
		b.choose(ordinary)
	}
}

// sample returns the kind of store of the piece that is timed next. Until both kinds are known,
// they take turns.
func (b *Bulk) sample() storeKind {
	k := b.pieces / sampleEvery
	if b.chosen == nonTemporal || k%otherEvery == 0 || k%2 == 0 && !b.costs[nonTemporal].known() {
		return nonTemporal
	}
	return ordinary
}

// took gives up ordinary stores if they are slow, after n bytes that were stored by one kind took so
// long.
func (b *Bulk) took(kind storeKind, n int, d time.Duration) {
	b.costs[kind].add(n, d)
	if b.chosen == nonTemporal || !b.costs[ordinary].known() || !b.costs[nonTemporal].known() {
		return
	}
	if uint64(b.costs[ordinary].sum()) > slow*uint64(b.costs[nonTemporal].sum()) {
		if b.stint > 0 && b.pieces-b.began < soon {
			b.stint = min(2*b.stint, mostStint)
		} else {
			b.stint = leastStint
		}
		b.choose(nonTemporal)
	}
}

func (b *Bulk) choose(kind storeKind) {
	b.chosen, b.began = kind, b.pieces
	b.costs[ordinary] = recentCosts{} // those of another stretch found other lines in the caches
}
