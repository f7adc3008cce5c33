package perf

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Host describes the machine on which the figures were measured.
type Host struct {
	CPUs       int    `json:"cpus"`
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
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		Go:         runtime.Version(),
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		Kernel:     kernel,
	}
}

// String returns the first line of every report.
func (h Host) String() string {
	return fmt.Sprintf("%s, GOMAXPROCS %d, %s, %s/%s, kernel %s",
		plural(h.CPUs, "CPU"), h.GOMAXPROCS, h.Go, h.OS, h.Arch, h.Kernel)
}
