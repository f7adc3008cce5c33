package shmem

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// thisPlace is where this process runs. Its processors are those of its first thread now,
// by the system's numbers, which all processes of the machine use.
func thisPlace() place {
	var p place
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		p.Machine = strings.TrimSpace(string(id))
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(os.Getpid(), &set) != nil || set.Count() == 0 {
		p.CPUs = allCPUs()
		return p
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			for len(p.CPUs) <= cpu/64 {
				p.CPUs = append(p.CPUs, 0)
			}
			p.CPUs[cpu/64] |= 1 << (cpu % 64)
		}
	}
	return p
}
