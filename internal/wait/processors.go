package wait

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/virtual"
)

const (
	// A spin that loses its processor for lostFor was stopped by the system, since a quota was used up or
	// another process had a turn. A virtual machine seldom takes a processor for so long. It is also how
	// long a peer on another machine may take to be woken. Row: Rates beside loops.
	lostFor = 2 * time.Millisecond
	// Processors are scarce for scarceLeast after such an event, and for twice as long as by the last one
	// if that was as short a time ago, up to scarceMost. Rows: Rates beside loops, and TestScarceProcessors.
	scarceLeast = 20 * time.Millisecond
	scarceMost  = 10 * time.Second
	// LookAgain is after how long a sleeper looks once more, since a membarrier may have overlooked a thread that has just ended. No row:
	// without it, that sleeper may not be woken (internal/testing/litmus).
	LookAgain = time.Millisecond
)

// processors is what this process knows of its processors. All its waits share it. Times are nanoseconds since epoch.
var processors = struct {
	epoch time.Time // constant

	// spinning counts the goroutines that spin, and always those of Config.Always, which the limit does not count.
	spinning, always atomic.Int32
	// procs is GOMAXPROCS, as it was at the time read.
	procs atomic.Int32
	read  atomic.Int64

	// Processors are scarce until the time scarce. The system last took one at event, which counts for lasts. It has taken one
	// so many times.
	scarce, event, lasts atomic.Int64
	taken                atomic.Uint64
}{epoch: time.Now()}

// Taken returns how often the system took the processor from a goroutine of this process that spun or yielded.
func Taken() uint64 { return processors.taken.Load() }

// clock returns the time since epoch.
func clock() time.Duration { return time.Since(processors.epoch) }

// scarce reports whether processors are scarce at the time now.
func scarce(now time.Duration) bool {
	until := processors.scarce.Load()
	return until != 0 && int64(now) < until
}

// look is called at the time now by a spin that had its processor at the time before. It reports whether
// the system took it meanwhile.
func look(before, now time.Duration) bool {
	if now-before < lostFor || virtual.Poll != nil {
		return false
	}
	p := &processors
	since, lasts := int64(now), p.lasts.Load()
	if int64(before) < p.event.Swap(since) {
		return true // the same stop as that of another spin
	}
	p.taken.Add(1)
	if since < p.scarce.Load()+lasts {
		lasts = min(2*lasts, int64(scarceMost))
	} else {
		lasts = int64(scarceLeast)
	}
	p.lasts.Store(lasts)
	p.scarce.Store(since + lasts)
	return true
}

// enter reports whether one more goroutine may spin. If so, it must leave. remote says that another machine's
// processors end the wait: only then can it end while it spins on the only processor.
func enter(now time.Duration, remote bool) bool {
	if processors.spinning.Add(1) > limit(now, remote) {
		leave()
		return false
	}
	return true
}

func leave() { processors.spinning.Add(-1) }

// limit returns how many goroutines may spin at the same time: half of GOMAXPROCS, so that other goroutines have
// the other half.
func limit(now time.Duration, remote bool) int32 {
	if virtual.Poll != nil {
		return math.MaxInt32
	}
	p := &processors
	// To ask for GOMAXPROCS takes a lock of the scheduler.
	if since := int64(now); p.procs.Load() == 0 || since > p.read.Load()+int64(scarceLeast) {
		p.read.Store(since)
		p.procs.Store(int32(runtime.GOMAXPROCS(0)))
	}
	if runtime.NumCPU() == 1 && !remote {
		return 0
	}
	return (p.procs.Load() + 1) / 2
}

// full reports whether more goroutines spin than may run at the same time, or the one that does has the only processor.
func full() bool {
	p := &processors
	n := p.procs.Load()
	return n == 1 || n > 1 && p.spinning.Load()+p.always.Load() > n
}
