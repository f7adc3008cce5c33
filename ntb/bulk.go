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
// Bulk takes the time of some of its stores, and tries the other kind from time to time.
type Bulk struct {
	streamed uint64 // pieces stored by non-temporal stores
	pieces   uint32 // that could have been
	chosen   storeKind
	costs    [2]recentCosts // by kind; of ordinary stores since the choice
	began    uint32         // pieces when it was made
	samples  uint32         // of ordinary stores before they are chosen again
}

// storeKind is a kind of store.
type storeKind uint8

const (
	ordinary    storeKind = iota
	nonTemporal           // pays for large pieces alone, since they are waited for
)

func (k storeKind) other() storeKind { return 1 - k }

const (
	// leastStreamed is the smallest piece, in bytes, for which Bulk has a choice.
	leastStreamed = 4 << 10
	// Of sampleEvery pieces, one is timed: an odd number, since large and small pieces may take turns.
	// Of otherEvery of those, one is stored by the kind that was not chosen.
	sampleEvery = 17
	otherEvery  = 16
	// Ordinary stores are given up when they take slow times as long as non-temporal ones: what
	// was stored by those takes the reader longer, if it has a cache in common. They are chosen again
	// when they take less than fair times as long. That is more, since a few of them
	// among non-temporal ones find no line in a near cache.
	slow = 3
	fair = 6
	// A choice of ordinary stores that was wrong ends within soon pieces. Then the next one takes
	// twice as many samples as the last, leastSamples to mostSamples.
	soon         = 64 * sampleEvery
	leastSamples = 16
	mostSamples  = 256
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
	b.pieces++
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

// sample returns the kind of store of the piece that is timed next. Until both kinds are known,
// they take turns.
func (b *Bulk) sample() storeKind {
	k, other := b.pieces/sampleEvery, b.chosen.other()
	if k%otherEvery == 0 || k%2 == 0 && !b.costs[other].known() {
		return other
	}
	return b.chosen
}

// took chooses a kind, after n bytes that were stored by one took so long.
func (b *Bulk) took(kind storeKind, n int, d time.Duration) {
	b.costs[kind].add(n, d)
	if !b.costs[ordinary].known() || !b.costs[nonTemporal].known() {
		return
	}
	cost, streamed := uint64(b.costs[ordinary].sum()), uint64(b.costs[nonTemporal].sum())
	switch {
	case b.chosen == ordinary && cost > slow*streamed:
		if b.began != 0 && b.pieces-b.began < soon {
			b.samples = min(max(2*b.samples, leastSamples), mostSamples)
		} else {
			b.samples = 0
		}
		b.choose(nonTemporal)
	case b.chosen == nonTemporal && cost < fair*streamed && b.costs[ordinary].n >= b.samples:
		b.choose(ordinary)
	}
}

func (b *Bulk) choose(kind storeKind) {
	b.chosen, b.began = kind, b.pieces
	b.costs[ordinary] = recentCosts{} // from now on they find other lines in the caches
}
