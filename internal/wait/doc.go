// Package wait is how this process polls before it sleeps. Connections, listeners, dials, the
// lanes of links and the waits of SHMEM use it.
//
// It knows no devices and no peers. After a spin that found nothing the caller arms, looks again
// and parks. How it does that depends on what wakes it.
//
// A [Spinner] belongs to one place where goroutines wait, one at a time:
//
//	switch s.Spin(source) {
//	case wait.Hit:     // what the source is for has come
//	case wait.Stopped: // there is a reason not to wait
//	case wait.Queued:  // s.TakeTurn(source) comes next; only behind s.Join
//	default:           // park
//	}
//
// Three things decide whether a wait spins: how the last spins at this place ended; one limit for
// all spins of the process but those of Config.Always, half of GOMAXPROCS; and whether processors are
// scarce, which the spins of the process notice. Where many waits find the limit reached, they take
// turns in a [Queue].
package wait
