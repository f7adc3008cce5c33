package job

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// thisPart returns where this process runs. Its processors are those that its first
// thread may use now. All processes of the machine number them alike.
func thisPart() machinePart {
	var p machinePart
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		p.Machine = strings.TrimSpace(string(id))
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(os.Getpid(), &set) != nil || set.Count() == 0 {
		p.CPUs = allCPUs()
		return p
	}
	for _, word := range set {
		p.CPUs = append(p.CPUs, uint64(word))
	}
	return p
}
