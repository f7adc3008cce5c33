package hostdir

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	chooseLimit = 5 * time.Second        // how long a process waits for another one of its user to choose
	holdLimit   = 500 * time.Millisecond // how long it waits for an exclusive flock to end, before it enters without one of its own
	holdPause   = 10 * time.Millisecond  // between two tries
	latePause   = time.Second            // the same, once it has entered
	enterTries  = 10                     // how often a directory may be removed while it is entered
)

// enter opens the directory, as open does, and holds a shared flock on it until close. So
// programs that remove what is old, such as systemd-tmpfiles, leave it alone: they want an
// exclusive one first. In the directory of a group each member may have one. So a process that
// does not get its own in holdLimit enters without, and goes on trying.
func (p Place) enter(create bool) (*openPlace, error) {
	for range enterTries {
		place, err := p.open(create)
		if err != nil {
			return nil, err
		}
		err = place.hold()
		if err == nil && place.exists() {
			return place, nil
		}
		place.close()
		if err != nil {
			return nil, place.denied(err)
		}
	}
	return nil, fmt.Errorf("fabric: %s is removed again and again while it is opened: end what removes it: %w", p.path, syscall.ESTALE)
}

// keptAway are the paths of the directories on which this process has not got its flock. It waits
// for none of them again.
var keptAway sync.Map

// hold takes the shared flock, or begins to try until close.
func (p *openPlace) hold() error {
	limit := holdLimit
	if _, before := keptAway.Load(p.path); before {
		limit = 0
	}
	err := p.lock(unix.LOCK_SH, limit)
	if err == nil {
		keptAway.Delete(p.path)
		return nil
	}
	if !errors.Is(err, ErrLocked) {
		return err
	}
	if _, before := keptAway.LoadOrStore(p.path, nil); !before {
		slog.Warn("fabric: this process uses the directory without its flock, so that what removes old files may remove it", "reason", err)
	}
	p.late = newLateLock(p.fd())
	return nil
}

// lateLock tries to take a shared flock until it has it, or is stopped.
type lateLock struct{ stopped, ended chan struct{} }

func newLateLock(fd int) *lateLock {
	l := &lateLock{make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(l.ended)
		for flock(fd, unix.LOCK_SH|unix.LOCK_NB) != nil {
			select {
			case <-l.stopped:
				return
			case <-time.After(latePause):
			}
		}
	}()
	return l
}

// stop returns when the descriptor is no longer used. It does nothing to nil.
func (l *lateLock) stop() {
	if l != nil {
		close(l.stopped)
		<-l.ended
	}
}

// lock takes an flock, how is LOCK_SH or LOCK_EX. If another process keeps it away for longer than
// limit, the error wraps ErrLocked.
func (p *openPlace) lock(how int, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(holdPause) {
		err := flock(p.fd(), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case err != unix.EWOULDBLOCK:
			return fmt.Errorf("fabric: lock directory %s: %w", p.path, kernels(err))
		case time.Now().After(end):
			return fmt.Errorf("fabric: another process, which may be stopped, has locked directory %s for %v: end it (fuser -v %[1]s), or use another directory: %[3]w",
				p.path, limit, ErrLocked)
		}
	}
}

// exists reports whether the directory has not been removed.
func (p *openPlace) exists() bool {
	var st unix.Stat_t
	return unix.Fstat(p.fd(), &st) == nil && st.Nlink > 0
}
