package perf

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// memory returns this process' proportional set size in bytes: its own pages, and
// its share of those that others map too. It first collects garbage.
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

// cpu returns the processor time of this process, in nanoseconds.
func cpu() (uint64, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return uint64(u.Utime.Nano() + u.Stime.Nano()), nil
}

// ProcessCPU returns the processor time of a process.
func ProcessCPU(pid int) (time.Duration, error) {
	// The number of a process' clock is computed from its id, as
	// clock_getcpuclockid(3) does. 2 means processor time.
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// ProcessSleeps returns how often the threads of a process have gone to sleep, those of Go's
// runtime among them: their voluntary context switches. A thread that has ended no longer
// counts.
func ProcessSleeps(pid int) (sum uint64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err == nil && len(threads) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return 0, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	for _, name := range threads {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		var n uint64
		_, after, _ := bytes.Cut(b, []byte("\nvoluntary_ctxt_switches:"))
		if _, err := fmt.Sscan(string(after), &n); err != nil {
			return 0, fmt.Errorf("%s: no voluntary_ctxt_switches: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}
