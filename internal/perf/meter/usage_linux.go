package meter

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns the processor time of this process.
func cpu() (c CPU) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		c.User, c.System = time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
	}
	return c
}

// memory returns this process' proportional set size in bytes: its own pages, and
// its share of pages that other processes map too. It collects garbage first. It returns 0 if the
// system does not report the size.
func memory() int64 {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "Pss: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// MachineBusy returns how long the processors of the machine have worked, all together, what the
// host of a virtual machine took from them among it. ok is false where the system does not say.
func MachineBusy() (busy time.Duration, ok bool) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	var user, nice, system, idle, wait, irq, soft, steal uint64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal); err != nil {
		return 0, false
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all that Go runs on
	return time.Duration(user+nice+system+irq+soft+steal) * tick, true
}
