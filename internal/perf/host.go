package perf

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Host is the machine that the figures are of.
type Host struct {
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Go         string `json:"go"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel"` // "unknown" where the system does not tell by /proc
}

// ThisHost describes the machine and the process it runs in.
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

// String is the first line of every report.
func (h Host) String() string {
	return fmt.Sprintf("%s, GOMAXPROCS %d, %s, %s/%s, kernel %s",
		plural(h.CPUs, "CPU"), h.GOMAXPROCS, h.Go, h.OS, h.Arch, h.Kernel)
}
