package launch

import "strconv"

// EnvReport names the descriptor of a pipe by which PEs tell shmemrun how far they are, in
// records of ReportBytes: a PE, high byte first, and its State.
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
	Dead    State = 'd' // another PE has found that it has ended
)

// Report tells shmemrun how far this PE is. Under other launchers it does nothing.
func (j *Job) Report(s State) { j.reportOf(j.PE, s) }

// ReportDead tells shmemrun that another PE has ended, so that its end counts as the first one, even if this process is
// seen to end before.
func (j *Job) ReportDead(pe int) { j.reportOf(pe, Dead) }

func (j *Job) reportOf(pe int, s State) {
	if j.report > 0 {
		writePipe(j.report, []byte{byte(pe >> 8), byte(pe), byte(s)})
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
