package launch

import "strconv"

// EnvReport names the descriptor of a pipe by which PEs tell shmemrun how far they are, in
// records of ReportBytes: the PE, high byte first, and a State.
const (
	EnvReport   = "SHMEM_REPORT_FD"
	ReportBytes = 3
)

// State is how far a PE is.
type State byte

// States of a PE.
const (
	Joining State = 'i' // it waits for the other PEs
	Joined  State = 'j' // it notices when another PE ends
	Left    State = 'l' // it does not need the other PEs any more, or knows that one has failed
)

// Report tells shmemrun how far this PE is. Under other launchers it does nothing.
func (j *Job) Report(s State) {
	if j.report > 0 {
		writePipe(j.report, []byte{byte(j.PE >> 8), byte(j.PE), byte(s)})
	}
}

// reportFD returns the descriptor that shmemrun names, or 0.
func reportFD(getenv env) int {
	fd, err := strconv.Atoi(getenv(EnvReport))
	if err != nil || fd <= 2 {
		return 0
	}
	return fd
}
