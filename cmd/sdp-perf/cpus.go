package main

import (
	"errors"
	"os"
	"runtime"
	"strconv"
)

// envOnCPUs is set by a program that starts itself anew on some processors, to their number.
const envOnCPUs = "SDP_PERF_ON_CPUS"

// cpus is the flag that has a command run on some processors only, with all processes that it
// starts.
type cpus struct{ n int }

func (c *cpus) register(fs *flagSet) {
	fs.IntVar(&c.n, "cpus", 0, "run on `N` processors, with all processes that are started: the first of those that this one may use (default all of them)")
}

// apply checks the flag. changed reports whether it was given. If this process does not run on
// as many processors, apply starts the program anew in its place: the number of processors is
// fixed when a program starts. It is called before anything else is started.
func (c *cpus) apply(changed bool) error {
	if !changed {
		return nil
	}
	may, err := usableCPUs()
	if errors.Is(err, errors.ErrUnsupported) {
		return badInputf("--cpus: this system does not bind processes to processors")
	}
	if err != nil {
		return err
	}
	switch {
	case c.n < 1 || c.n > len(may):
		return badInputf("--cpus %d: use a number from 1 to %d, as many as this process may use", c.n, len(may))
	case runtime.NumCPU() == c.n && runtime.GOMAXPROCS(0) == c.n:
		return nil
	case os.Getenv(envOnCPUs) == strconv.Itoa(c.n):
		return badInputf("--cpus %d: this process gets %d processors and GOMAXPROCS %d", c.n, runtime.NumCPU(), runtime.GOMAXPROCS(0))
	}
	return startOn(may[:c.n])
}
