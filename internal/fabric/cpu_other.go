//go:build !linux

package fabric

// cpuTime returns 0: it is not known.
func cpuTime() float64 { return 0 }
