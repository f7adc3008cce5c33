package bounce

import (
	"reflect"
	"runtime"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/wait"
)

// Stats counts what a connection did. The counters are exact when no Read or Write
// is under way. During one they may be as old as its last wait, or as the call
// before.
type Stats struct {
	BytesRead, RecordsRead uint64

	// Payload written, by path: in the record's own lines, or behind it by CPU
	// stores. Of the latter, those that were stored by non-temporal stores, see [ntb.Bulk].
	InlineBytes, InlineRecords uint64
	MMIOBytes, MMIORecords     uint64
	MMIOStreamed               uint64

	// Payload written by a DMA engine; the copies that it took; those of them that
	// failed and were made by the CPU; and how often the CPU did the work of a channel
	// that was full or could register no more memory.
	DMABytes, DMARecords, DMACopies, DMAErrors, DMAFull uint64

	// Notifications because the peer's reader was about to sleep. Each rings a doorbell
	// only if the peer's link goroutine sleeps too. Every other record saved one.
	Doorbells, DoorbellsSaved uint64

	// Spins and turns of waits, those of them that ended by data or room, and waits that
	// parked, for data to read and for room to write.
	ReadSpins, ReadSpinHits, ReadParks    uint64
	WriteSpins, WriteSpinHits, WriteParks uint64

	// Waits that would have spun, but parked because other processes needed the
	// processors.
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
	sum, more := reflect.ValueOf(s).Elem(), reflect.ValueOf(o)
	for i := range sum.NumField() {
		sum.Field(i).SetUint(sum.Field(i).Uint() + more.Field(i).Uint())
	}
}

// snapshot is a copy of a half's counters, for those that want them while a call has the
// half's lock.
type snapshot[T any] struct {
	mu lock.Mutex[lock.Counts]
	v  T // guarded by mu
}

func (s *snapshot[T]) store(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v = v
}

func (s *snapshot[T]) load() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.v
}

// Stats returns the connection's counters.
func (c *Pair) Stats() (s Stats) {
	if c.linked.Load() {
		saveIfFree(&c.r.mu, c.r.busy, c.r.save)
		saveIfFree(&c.w.mu, c.w.busy, c.w.save)
	}
	c.r.saved.load().addTo(&s)
	c.w.saved.load().addTo(&s)
	return s
}

// saveTries is how often a half's lock is tried for the sake of counters. Most calls
// are over by then. A call that moves much is not waited for.
const saveTries = 100

// saveIfFree calls save with mu locked, unless a call has mu that may last long: one that
// is parked, and has saved its counters, or a lease. Then busy reports true.
func saveIfFree[C lock.Class](mu *callLock[C], busy func() bool, save func()) {
	for range saveTries {
		if mu.visit() {
			save()
			mu.leave()
			return
		}
		if busy() {
			return
		}
		runtime.Gosched()
	}
}

// waitCounts are the counters of a waiter.
type waitCounts struct {
	wait.Counts
	parks uint64
}

// readCounts are the counters of a reader.
type readCounts struct {
	rxStats
	moves uint64
	waits waitCounts
}

func (r readCounts) addTo(s *Stats) {
	s.BytesRead += r.bytes
	s.RecordsRead += r.records
	s.MovesRead += r.moves
	s.ReadSpins += r.waits.Spins
	s.ReadSpinHits += r.waits.Hits
	s.ReadSpinsSpared += r.waits.Spared
	s.ReadParks += r.waits.parks
}

// writeCounts are the counters of a writer.
type writeCounts struct {
	pathStats
	streamed  uint64
	dma       dmaStats
	doorbells uint64
	moves     uint64
	waits     waitCounts
}

func (w writeCounts) addTo(s *Stats) {
	s.InlineBytes += w.inlineBytes
	s.InlineRecords += w.inlineRecords
	s.MMIOBytes += w.mmioBytes
	s.MMIORecords += w.mmioRecords
	s.MMIOStreamed += w.streamed
	w.dma.addTo(s)
	s.Doorbells += w.doorbells
	if records := w.inlineRecords + w.mmioRecords + w.dma.records; records > w.doorbells {
		s.DoorbellsSaved += records - w.doorbells
	}
	s.MovesWritten += w.moves
	s.WriteSpins += w.waits.Spins
	s.WriteSpinHits += w.waits.Hits
	s.WriteSpinsSpared += w.waits.Spared
	s.WriteParks += w.waits.parks
	s.StallsFull += w.stallsFull
	s.StallsLimit += w.stallsLimit
	s.StallsSmall += w.stallsSmall
}
