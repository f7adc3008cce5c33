package limits

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// yield lets other threads have this processor.
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Yield returns the CPU time that one sched_yield takes on average, in microseconds. With it a
// process offers its processor to others; when none wants it, that is the price of the offer.
func Yield() (float64, error) {
	const n = 2000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, err := threadTime()
	if err != nil {
		return 0, err
	}
	for range n {
		yield()
	}
	end, err := threadTime()
	return float64(end-start) / n / 1e3, err
}

// threadTime returns the CPU time of this thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}
