package main

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes puts a PE into a process group of its own. It makes the kernel
// kill the PE when the thread that starts it ends.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// cpus are the CPUs of a core that this process may use.
type cpus unix.CPUSet

// cores returns the cores that this process may use. It returns none if it cannot know.
func cores() (all []cpus) {
	var mine unix.CPUSet
	if unix.SchedGetaffinity(0, &mine) != nil {
		return nil
	}
	seen := map[string]int{}
	for cpu := range len(mine) * 64 {
		if !mine.IsSet(cpu) {
			continue
		}
		siblings, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
		if err != nil {
			siblings = fmt.Append(nil, cpu)
		}
		i, ok := seen[string(siblings)]
		if !ok {
			i = len(all)
			seen[string(siblings)] = i
			all = append(all, cpus{})
		}
		(*unix.CPUSet)(&all[i]).Set(cpu)
	}
	return all
}

// bind binds this thread, and the processes that it starts, to the core until the function that
// it returns is called.
func (c *cpus) bind() (undo func()) {
	var before unix.CPUSet
	if unix.SchedGetaffinity(0, &before) != nil || unix.SchedSetaffinity(0, (*unix.CPUSet)(c)) != nil {
		return func() {}
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }
}
