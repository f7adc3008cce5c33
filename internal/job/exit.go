package job

import (
	"fmt"
	"os"
	"time"
)

// Times of GlobalExit.
const (
	exitLimit = 3 * time.Second        // until all are told
	exitGrace = 100 * time.Millisecond // until all have read it
)

// GlobalExit ends the job: the process of every PE, this one too, exits with status, 0 to 255. It
// does not return. If PEs share this process, the process goes on, and their calls fail.
func (w *World) GlobalExit(status int) {
	if w.opts.inProcess {
		w.mu.Lock()
		others := w.reached(-1)
		w.mu.Unlock()
		for _, p := range others {
			w.wg.Go(func() { _ = p.Channel().Exit(status) })
		}
	}
	w.exit(w.pe, status)
	if !w.opts.inProcess {
		select {} // another PE has ended the job, too
	}
}

// exit ends this process because PE pe, perhaps this one, called GlobalExit. It first
// tells all others, and waits a little. A PE that sees this one end must know by then
// that the whole job ends, or else it takes the end for a failure. So each PE hears it
// from every other PE before it sees that one's connection end.
func (w *World) exit(pe, status int) {
	if w.opts.inProcess {
		w.fail(pe, fmt.Errorf("it ended the job with status %d", status))
		return
	}
	w.mu.Lock()
	again := w.ending()
	if !again {
		close(w.exiting)
	}
	others := w.reached(pe)
	w.mu.Unlock()
	if again {
		return
	}
	// If all PEs have been told, each exits with status, and none need be killed.
	if told := w.tellExit(others, status); !w.opts.launcher.AbortKills() || pe == w.pe && !told {
		_ = w.opts.launcher.Abort(status, "") // launchers of other PEs see how this process ends
	}
	time.Sleep(exitGrace)
	if w.opts.Exit != nil {
		w.opts.Exit(status)
		return
	}
	os.Exit(status)
}

// tellExit informs all PEs at once, since some may not read. It reports whether all have been told.
func (w *World) tellExit(others []*peer, status int) bool {
	told := make(chan error, len(others))
	for _, p := range others {
		go func() {
			err := p.Channel().Exit(status)
			p.Channel().Close() // Close waits until the request is there
			told <- err
		}()
	}
	limit := time.After(exitLimit)
	all := true
	for range others {
		select {
		case err := <-told:
			all = all && err == nil
		case <-limit:
			return false
		}
	}
	return all
}
