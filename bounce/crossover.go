package bounce

import (
	"cmp"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
)

// crossover is from which size on a pool uses the engine, and why.
type crossover struct {
	points    []CrossoverPoint // as measured
	threshold int              // in bytes; 0 for no engine
}

// newCrossover measures the ways to a peer. An engine is used from atLeast bytes on, or if that is
// 0 from where it is the faster way.
func newCrossover(p *link.Peer, atLeast int) (x crossover) {
	if p.Caps().DMAChannels == 0 {
		return x
	}
	x.points = measureCrossover(p)
	x.threshold = cmp.Or(atLeast, thresholdOf(x.points))
	return x
}

// engine returns the way through the engine for a connection, or nil if it uses none.
func (x *crossover) engine(p *link.Peer, gen uint32, bell *bell) *dmaTx {
	if x.threshold == 0 {
		return nil
	}
	return newDMA(p.DMA(int(gen)%p.Caps().DMAChannels), x.threshold, bell)
}

// dmaStats are the counters of a connection's way through the engine.
type dmaStats struct{ records, bytes, copies, errors, full uint64 }

func (d *dmaTx) stats() dmaStats {
	if d == nil {
		return dmaStats{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.st
}

func (d dmaStats) addTo(s *Stats) {
	s.DMABytes += d.bytes
	s.DMARecords += d.records
	s.DMACopies += d.copies
	s.DMAErrors += d.errors
	s.DMAFull += d.full
}

// CrossoverPoint is the cost of one payload size by either way, until the payload
// has arrived and its header could be published.
type CrossoverPoint struct {
	Size int           // bytes
	MMIO time.Duration // CPU stores
	DMA  time.Duration // the engine, from its start to its completion
}

// scratch is the size of the end of a region that holds no queue, so that costs can
// be measured without harm. Small regions have none.
const scratch = 64 << 10

// scratchOf returns the offset of the scratch in a region of n bytes, or n if it
// has none.
func scratchOf(n int) int {
	if n < 64*scratch {
		return n
	}
	return n&^4095 - scratch
}

const crossoverRounds = 9

// measureCrossover measures both ways into the peer's scratch. It takes about a
// millisecond.
func measureCrossover(p *link.Peer) []CrossoverPoint {
	win := p.Remote()
	at := scratchOf(win.Len())
	if at == win.Len() {
		return nil
	}
	ch := p.DMA(0)
	src, err := ch.Alloc(scratch)
	if err != nil {
		return nil // an engine that can read nothing is not used
	}
	defer ch.Free(src)
	done := make(chan error, 1)
	report := func(err error) { done <- err }
	var points []CrossoverPoint
	for size := 512; size <= scratch; size *= 2 {
		var mmio, dma []time.Duration
		for range crossoverRounds {
			start := time.Now()
			win.Write(at, src[:size])
			win.Publish64(at, 0) // on write-combining memory, this flushes
			mmio = append(mmio, time.Since(start))
			start = time.Now()
			if !ch.Start(win.Offset()+at, src[:size], report) || <-done != nil {
				return nil // an engine that fails from the start is not used
			}
			dma = append(dma, time.Since(start))
		}
		points = append(points, CrossoverPoint{size, median(mmio), median(dma)})
	}
	return points
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// thresholdOf returns the size from which on the engine is the faster way, or 0 if
// it never is.
func thresholdOf(points []CrossoverPoint) int {
	threshold := 0
	for _, p := range slices.Backward(points) {
		if p.DMA > p.MMIO {
			break
		}
		threshold = p.Size
	}
	return threshold
}

// Crossover returns what was measured when the link came up, and the threshold in
// use, 0 for none. It returns nothing if the bridge has no engine.
func (p *Pool) Crossover() ([]CrossoverPoint, int) { return p.crossover.points, p.crossover.threshold }
