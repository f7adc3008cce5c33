package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mostCPUs is more than a kernel can be built for.
const mostCPUs = 1 << 16

// usableCPUs returns the numbers of the processors that this process may use.
func usableCPUs() (list []int, err error) {
	set := unix.NewCPUSet(mostCPUs)
	if err := unix.SchedGetaffinityDynamic(os.Getpid(), set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	for i := range mostCPUs {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list, nil
}

// startOn starts this program anew in the place of this process, on these processors, with the
// same arguments. It returns only if it fails.
func startOn(list []int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	set := unix.NewCPUSet(mostCPUs)
	for _, i := range list {
		set.Set(i)
	}
	// The thread that starts the program is the only one that is left.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old := unix.NewCPUSet(mostCPUs)
	if err := unix.SchedGetaffinityDynamic(0, old); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err)
	}
	n := strconv.Itoa(len(list))
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "GOMAXPROCS=") || strings.HasPrefix(s, envOnCPUs+"=")
	})
	err = unix.Exec(exe, os.Args, append(env, "GOMAXPROCS="+n, envOnCPUs+"="+n))
	return errors.Join(fmt.Errorf("start on %s processors: %w", n, err), unix.SchedSetaffinityDynamic(0, old))
}
