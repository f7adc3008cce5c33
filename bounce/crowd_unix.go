//go:build unix

package bounce

import "syscall"

// involuntarySwitches is how often the system stopped a thread of this process to
// run another.
func involuntarySwitches() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Nivcsw)
}
