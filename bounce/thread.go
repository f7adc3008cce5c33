package bounce

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/ntb"
)

// onThreads is set where threads of C make the calls.
var onThreads bool

// OnThreads says that threads of C make the calls of this process. The goroutine of such a call is bound to its thread, so
// to let another goroutine run takes two switches of threads. Waits then poll without that before they do all else, and
// yield their processor to other processes. It is called before the first connection.
func OnThreads() { onThreads = true }

// threads counts the waits that poll so.
var threads atomic.Int32

const (
	threadCheck = 16  // polls between two looks at the clock
	threadYield = 128 // polls between two yields
	// After so many polls in vain in a row, the next waits do not poll, and each further one doubles how many, up to 1 << mostFails.
	someFails = 4
	mostFails = 9
)

// threadSpin decides whether the waits of a half poll as OnThreads says. The half's lock guards it.
type threadSpin struct {
	fails, skip int
}

// spin polls until h is ready, and reports whether it is. Otherwise the caller waits as other goroutines do.
func (t *threadSpin) spin(h half, w *waiter) bool {
	switch {
	case !onThreads || w.control.watches || w.opts.Spin <= 0:
		return false
	case t.skip > 0:
		t.skip--
		return false
	}
	defer threads.Add(-1)
	if int(threads.Add(1)) > (runtime.GOMAXPROCS(0)+1)/2 || runtime.NumCPU() == 1 {
		return false
	}
	start := time.Now()
	for i := 1; ; i++ {
		if h.Ready() {
			*t = threadSpin{}
			return true
		}
		ntb.Pause()
		if i%threadYield == 0 {
			wait.Yield()
		}
		if i%threadCheck != 0 {
			continue
		}
		if h.Stopped() {
			return false
		}
		if time.Since(start) > w.opts.Spin {
			break
		}
	}
	w.spinner.Miss() // which need not poll now
	if t.fails = min(t.fails+1, mostFails); t.fails >= someFails {
		t.skip = 1 << t.fails
	}
	return false
}

// worked counts the work of a call that moved n bytes, for the goroutines that a thread does not hold up.
func (w *waiter) worked(n int) {
	if !onThreads {
		w.spinner.Worked(n)
	}
}
