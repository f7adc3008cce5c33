package perf

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// memory is this process' proportional set size in bytes: its own pages, and its
// share of those that others map too. Garbage is collected first.
func memory() (uint64, error) {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var kib uint64
		if n, _ := fmt.Sscanf(lines.Text(), "Pss: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("smaps_rollup: no Pss")
}

// cpu is how long this process has run on all processors, in nanoseconds.
func cpu() (uint64, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return uint64(u.Utime.Nano() + u.Stime.Nano()), nil
}

// ProcessCPU is how long a process has run on all processors.
func ProcessCPU(pid int) (time.Duration, error) {
	// The number of a process' clock is made of its id, as clock_getcpuclockid(3)
	// does it: 2 is for the time on processors.
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
