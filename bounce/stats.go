package bounce

import (
	"runtime"
	"sync"

	"github.com/ntbnet/ntbnet/ring"
)

// Stats counts what a connection did. The counters are exact when no Read or Write
// is under way. During one they may be as old as its last wait, or as the call
// before.
type Stats struct {
	BytesRead, RecordsRead uint64

	// Payload written, by path: in the record's own lines, or behind it by CPU
	// stores.
	InlineBytes, InlineRecords uint64
	MMIOBytes, MMIORecords     uint64

	// Payload written by a DMA engine; the copies that it took; those of them that
	// failed and were made by the CPU; how often the CPU did the work of a channel
	// that was full; and why copies were started: the bounce buffer was full, a
	// Read followed, the end, the data was below the coalescing threshold, the
	// engine was idle.
	DMABytes, DMARecords, DMACopies, DMAErrors, DMAFull                    uint64
	DMAStartFull, DMAStartRead, DMAStartClose, DMAStartSmall, DMAStartIdle uint64

	// Doorbells rung because the peer's reader was about to sleep. Every other
	// record saved one.
	Doorbells, DoorbellsSaved uint64

	// Waits that spun, those of them that ended by data or room, and waits that
	// parked, for data to read and for room to write.
	ReadSpins, ReadSpinHits, ReadParks    uint64
	WriteSpins, WriteSpinHits, WriteParks uint64

	// Waits that would have spun, but parked because other processes needed the
	// processors, see Thrift.
	ReadSpinsSpared, WriteSpinsSpared uint64

	// Waits of a Write for room, by reason: the queue was full although it is as
	// large as it gets, the limit that SetWriteBuffer set was reached, or the queue
	// is small and a larger one was asked for. Each may spin or park several times.
	StallsFull, StallsLimit, StallsSmall uint64

	// Moves to another queue, read and written.
	MovesRead, MovesWritten uint64
}

// BytesWritten returns the payload written by all paths.
func (s Stats) BytesWritten() uint64 { return s.InlineBytes + s.MMIOBytes + s.DMABytes }

// Add adds o to s.
func (s *Stats) Add(o Stats) {
	s.BytesRead += o.BytesRead
	s.RecordsRead += o.RecordsRead
	s.InlineBytes += o.InlineBytes
	s.InlineRecords += o.InlineRecords
	s.MMIOBytes += o.MMIOBytes
	s.MMIORecords += o.MMIORecords
	s.DMABytes += o.DMABytes
	s.DMARecords += o.DMARecords
	s.DMACopies += o.DMACopies
	s.DMAErrors += o.DMAErrors
	s.DMAFull += o.DMAFull
	s.DMAStartFull += o.DMAStartFull
	s.DMAStartRead += o.DMAStartRead
	s.DMAStartClose += o.DMAStartClose
	s.DMAStartSmall += o.DMAStartSmall
	s.DMAStartIdle += o.DMAStartIdle
	s.Doorbells += o.Doorbells
	s.DoorbellsSaved += o.DoorbellsSaved
	s.ReadSpins += o.ReadSpins
	s.ReadSpinHits += o.ReadSpinHits
	s.ReadParks += o.ReadParks
	s.WriteSpins += o.WriteSpins
	s.WriteSpinHits += o.WriteSpinHits
	s.WriteParks += o.WriteParks
	s.ReadSpinsSpared += o.ReadSpinsSpared
	s.WriteSpinsSpared += o.WriteSpinsSpared
	s.StallsFull += o.StallsFull
	s.StallsLimit += o.StallsLimit
	s.StallsSmall += o.StallsSmall
	s.MovesRead += o.MovesRead
	s.MovesWritten += o.MovesWritten
}

// Stats returns the connection's counters.
func (c *Pair) Stats() Stats {
	if c.linked.Load() {
		c.saveIfFree(&c.rmu, &c.rw, ring.Data, leaseRead)
		c.saveIfFree(&c.wmu, &c.ww, ring.Space, leaseWrite)
	}
	c.smu.Lock()
	defer c.smu.Unlock()
	return c.stats
}

// tryLocker is a lock of a direction.
type tryLocker interface {
	sync.Locker
	TryLock() bool
}

// saveTries is how often a direction's lock is tried for the sake of counters. Most calls
// are over by then. A call that moves much is not waited for.
const saveTries = 100

// saveIfFree saves one direction's counters, unless its lock is held by a call that
// may last long: one that is parked, and has saved them, or a lease.
func (c *Pair) saveIfFree(mu tryLocker, w *waiter, direction int, lease uint8) {
	for range saveTries {
		if mu.TryLock() {
			c.saveStats(direction)
			mu.Unlock()
			return
		}
		c.smu.Lock()
		leased := c.leases&lease != 0
		c.smu.Unlock()
		if leased || w.parked.Load() {
			return
		}
		runtime.Gosched()
	}
}

// saveStats copies one direction's counters to where Stats finds them while the
// direction's lock is held. The caller holds that lock.
func (c *Pair) saveStats(direction int) {
	c.smu.Lock()
	defer c.smu.Unlock()
	s := &c.stats
	if direction == ring.Data {
		s.BytesRead, s.RecordsRead = c.rx.st.bytes, c.rx.st.records
		s.MovesRead = uint64(c.rx.gen - 1)
		w := &c.rw.counts
		s.ReadSpins, s.ReadSpinHits, s.ReadSpinsSpared, s.ReadParks = w.spins, w.spinHits, w.spared, w.parks
		return
	}
	t := &c.tx.st
	s.InlineBytes, s.InlineRecords = t.inlineBytes, t.inlineRecords
	s.MMIOBytes, s.MMIORecords = t.mmioBytes, t.mmioRecords
	if c.tx.dma != nil {
		d := c.tx.dma.stats()
		s.DMABytes, s.DMARecords, s.DMACopies, s.DMAErrors = d.bytes, d.records, d.copies, d.errors
		s.DMAFull = d.full
		s.DMAStartFull, s.DMAStartRead, s.DMAStartClose = d.startFull, d.startRead, d.startClose
		s.DMAStartSmall, s.DMAStartIdle = d.startSmall, d.startIdle
	}
	s.Doorbells = c.doorbells.Load()
	if records := s.InlineRecords + s.MMIORecords + s.DMARecords; records > s.Doorbells {
		s.DoorbellsSaved = records - s.Doorbells
	}
	w := &c.ww.counts
	s.WriteSpins, s.WriteSpinHits, s.WriteSpinsSpared, s.WriteParks = w.spins, w.spinHits, w.spared, w.parks
	s.StallsFull, s.StallsLimit, s.StallsSmall = t.stallsFull, t.stallsLimit, t.stallsSmall
	if c.tx.gen > 0 {
		s.MovesWritten = uint64(c.tx.gen - 1)
	}
}
