// Package wait is how this process polls before it sleeps: for how long, how it lets other
// goroutines run meanwhile, and whether it polls at all. Connections, listeners, dials, the
// lanes of links and the waits of SHMEM use it.
//
// It knows no devices and no peers, and it does not sleep. After a spin that found nothing the
// caller arms, looks again and parks. How it does that depends on what wakes it.
//
// A [Spinner] belongs to one place where goroutines wait, one at a time:
//
//	switch s.Spin(source) {
//	case wait.Hit:     // what the source is for has come
//	case wait.Stopped: // there is a reason not to wait
//	case wait.Crowded: // s.TakeTurn(source) comes next; only behind s.Join
//	default:           // park
//	}
//
// Four things decide whether a wait spins, and for how long:
//
//   - the budget of the Spinner, which is a few times what parking and being woken take;
//   - guesses, from how the last spins at this place ended;
//   - one limit for all spins of the process: half of GOMAXPROCS, rounded up, and none on a
//     machine with one processor, unless another machine ends the wait;
//   - a [Thrift], which notices that other processes need the processors.
//
// Where many waits find the limit reached, they take turns in a [Crowd]. A wait that has spun for a
// while, or for long without a hit, gives its turn to one whose source is ready.
//
// Where other processes end a wait by a plain store, perhaps within nanoseconds, an [Offers]
// polls instead. It has the same limit, where it gives way to Spinners, and its own way to notice
// other processes. The waits for frames share one, see [Frames]: workers of lanes poll by it, and
// Spinners may offer by it.
package wait
