package job

import "runtime"

// machinePart is where a PE runs.
type machinePart struct {
	Machine string   `json:"machine"` // a name that no other machine has at the moment; may be empty
	CPUs    []uint64 `json:"cpus"`    // the processors that it may use, as bits
}

// allCPUs returns a set of as many processors as this process may use. It stands for
// the real set where that is not known.
func allCPUs() []uint64 {
	n := runtime.NumCPU()
	bits := make([]uint64, (n+63)/64)
	for i := range n {
		bits[i/64] |= 1 << (i % 64)
	}
	return bits
}

// crowded reports whether PEs that use each so many processors have to take turns at those that PE pe
// may use. It takes all PEs of the machine that may use one of these processors, or one of those that
// such a PE may use, and so on. They are crowded if they use more than all these
// processors.
func crowded(places []machinePart, pe, each int) bool {
	var union cpuSet
	union.add(places[pe].CPUs)
	in := make([]bool, len(places))
	in[pe] = true
	pes := 1
	for grown := true; grown; {
		grown = false
		for i, p := range places {
			if !in[i] && p.Machine == places[pe].Machine && union.meets(p.CPUs) {
				union.add(p.CPUs)
				in[i], grown = true, true
				pes++
			}
		}
	}
	return pes*each > union.count()
}
