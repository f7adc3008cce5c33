package shmem

import (
	"fmt"
	"os"
	"time"
)

// Times of GlobalExit.
const (
	exitLimit = 3 * time.Second        // for all to be told
	exitGrace = 100 * time.Millisecond // for all to hear of it
)

// GlobalExit ends the job, like shmem_global_exit: every PE's process exits with
// status, 0 to 255, this one too. A PE that does not listen is left to the launcher. PEs
// that share this process do not end it: their calls fail.
func (w *World) GlobalExit(status int) {
	if w.opts.inProcess {
		w.mu.Lock()
		others := w.channels(-1)
		w.mu.Unlock()
		for _, ch := range others {
			w.wg.Go(func() { _ = ch.tell(opExit, status) })
		}
	}
	w.exit(w.pe, status)
}

// exit ends this process because PE pe said so, or is this one. It tells all others
// first, and waits a little: who notices the end of a PE must know already that it is
// the end of all, or else takes it for a failure. They hear it from each PE before they
// see the end of that one's connection.
func (w *World) exit(pe, status int) {
	if w.opts.inProcess {
		w.fail(pe, fmt.Errorf("it ended the job with status %d", status))
		return
	}
	w.mu.Lock()
	again := w.exiting
	w.exiting = true
	others := w.channels(pe)
	w.mu.Unlock()
	if again {
		return
	}
	w.tellExit(others, status)
	_ = w.opts.launcher.Abort(status, "") // others' launchers see how this process ends
	time.Sleep(exitGrace)
	os.Exit(status)
}

// tellExit tells all at once, since some may not listen.
func (w *World) tellExit(others []*channel, status int) {
	told := make(chan struct{}, len(others))
	for _, ch := range others {
		go func() {
			_ = ch.tell(opExit, status)
			ch.conn.Close() // it waits until that is there
			told <- struct{}{}
		}()
	}
	limit := time.After(exitLimit)
	for range others {
		select {
		case <-told:
		case <-limit:
			return
		}
	}
}
