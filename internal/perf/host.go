package perf

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Host describes the machine on which the figures were measured.
type Host struct {
	CPUs       int    `json:"cpus"`    // that the processes might use
	Of         int    `json:"of_cpus"` // that the machine has; 0 if the system does not say
	GOMAXPROCS int    `json:"gomaxprocs"`
	Go         string `json:"go"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel"` // "unknown" if /proc does not say
}

// ThisHost describes this machine and process.
func ThisHost() Host {
	kernel := "unknown"
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(b))
	}
	return Host{
		CPUs:       runtime.NumCPU(),
		Of:         onlineCPUs(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		Go:         runtime.Version(),
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		Kernel:     kernel,
	}
}

// onlineCPUs returns how many processors the machine has, or 0 if the system does not say.
func onlineCPUs() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return 0
	}
	return countCPUs(strings.TrimSpace(string(b)))
}

// countCPUs returns how many numbers a list such as "0-3,8" has, or 0 if it is none.
func countCPUs(list string) (n int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, fromErr := strconv.Atoi(first)
		to, toErr := strconv.Atoi(last)
		if fromErr != nil || toErr != nil || to < from {
			return 0
		}
		n += to - from + 1
	}
	return n
}

// String returns the first line of every report.
func (h Host) String() string {
	cpus := plural(h.CPUs, "CPU")
	if h.Of > h.CPUs {
		cpus = fmt.Sprintf("%d of %s", h.CPUs, plural(h.Of, "CPU"))
	}
	return fmt.Sprintf("%s, GOMAXPROCS %d, %s, %s/%s, kernel %s",
		cpus, h.GOMAXPROCS, h.Go, h.OS, h.Arch, h.Kernel)
}
