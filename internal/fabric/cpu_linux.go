package fabric

import "golang.org/x/sys/unix"

// cpuTime returns the processor time of this process, in seconds.
func cpuTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
