package fabric

import (
	"github.com/ntbnet/ntbnet/internal/hostdir"

	"github.com/ntbnet/ntbnet/internal/spec"
)

// shmProcesses returns how many processes of a node run on this machine.
func shmProcesses(spec *spec.Spec, node int) int {
	dir, err := hostdir.Open(spec.PlaceOf(node), false)
	if err != nil {
		return 0
	}
	defer dir.Close()
	all, _ := dir.Processes()
	return len(all)
}
