package fabric

import "strconv"

// What programs that run as several processes, such as the PEs of a SHMEM job, want to know
// of a fabric. So they need not know how specs are written.

// OneHost returns the spec of a fabric of one host.
func OneHost(name string) string { return "shm:" + name }

// InProcess reports whether the fabric is memory of one process.
func (s *Spec) InProcess() bool { return s.Backend == "mem" }

// Chain reports whether each node is linked with the next one only, by its number, and
// whether the last one is then linked with the first.
func (s *Spec) Chain() (chained, closed bool) {
	return s.Kind == "ring" || s.Kind == "line", s.Kind == "ring"
}

// NodeName returns the name of a node, for addresses.
func NodeName(node int) string { return "node" + strconv.Itoa(node) }
