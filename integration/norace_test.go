//go:build !race

package integration

// raceEnabled reports whether the race detector is on, under which connections run on the heap.
const raceEnabled = false
