package dial

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/hello"
)

// Step is one of the steps of a dial. A process that may have the port is reached, and
// then a connection to it is opened.
type Step int

const (
	// Reach finds the process that has the port, and a link to it.
	Reach Step = iota
	// Redirect finds a link to the process that Next.Process names.
	Redirect
	// Open sends a Hello to the process that was reached.
	Open
)

// Next is what a dial does after a step that failed.
type Next struct {
	Step    Step
	Process int           // of Redirect
	Pause   time.Duration // before it
}

// Limits of a dial, besides its deadline.
const (
	// maxLinks is how many links may go down during a dial.
	maxLinks = 3
	// maxRedirects is how often a dial is redirected before it reaches the port again.
	maxRedirects = 4
	// maxPorts is how many ports of the dialling endpoint may be in use at the listener, by
	// connections of other processes.
	maxPorts = 64

	// The pause before a listener or a window that was full is asked again. It doubles
	// from the first to the last.
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Retry is the policy of a dial: it decides after each failure what comes next. It never
// waits itself. One goroutine uses it. The dial's deadline is its context's.
type Retry struct {
	// Far is set for a port of another host, whose processes redirect dials to each other.
	Far bool
	// Patient is set if the dial has a deadline. Then it waits until a window has room.
	Patient bool

	links, redirects, ports int
	pause                   time.Duration
	full                    error // the last failure, if another process may mend it in time; else nil
}

// After returns what to do after a failure, or the error of the whole dial.
func (r *Retry) After(failure error) (Next, error) {
	r.full = nil
	redirected := new(RedirectError)
	switch {
	case errors.Is(failure, errBacklog), errors.Is(failure, syscall.ENOBUFS) && r.Patient:
		r.full = failure
		r.pause = min(max(2*r.pause, firstPause), lastPause)
		return Next{Step: Open, Pause: r.pause}, nil
	case errors.Is(failure, ErrAddressTaken):
		if r.ports++; r.ports == maxPorts {
			return Next{}, fmt.Errorf("%w: %w", failure, syscall.EADDRNOTAVAIL)
		}
		return Next{Step: Open}, nil
	case errors.Is(failure, ErrLinkDown):
		return r.lost(failure)
	case errors.As(failure, &redirected) && r.Far && r.redirects < maxRedirects:
		r.redirects++
		return Next{Step: Redirect, Process: redirected.Process}, nil
	case errors.As(failure, &redirected) && r.Far:
		return r.lost(fmt.Errorf("the port changed hands %d times: %w", maxRedirects, failure))
	case errors.As(failure, &redirected):
		return r.lost(failure) // it has just passed to another process
	}
	return Next{}, failure
}

// lost is After for a link that is down, or a process that no longer holds the port.
func (r *Retry) lost(failure error) (Next, error) {
	r.redirects = 0
	if r.links++; r.links < maxLinks {
		return Next{Step: Reach}, nil
	}
	if r.Far {
		return Next{}, fmt.Errorf("%w: %w", failure, syscall.EHOSTUNREACH)
	}
	return Next{}, fmt.Errorf("%w: %w", failure, syscall.ECONNREFUSED) // each process that held the port went away
}

// Ended returns the error of a dial whose context ended with why. If the dial was waiting
// for room, the error names that too.
func (r *Retry) Ended(why error) error {
	if r.full != nil {
		return fmt.Errorf("%w: %w", why, r.full)
	}
	return why
}

// errBacklog reports that the listener's backlog is full.
var errBacklog = errors.New(hello.BacklogFull.String())
