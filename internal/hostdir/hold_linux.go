package hostdir

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	holdLimit  = 5 * time.Second       // how long a process waits for another one's flock to end
	holdPause  = 10 * time.Millisecond // between two tries
	enterTries = 10                    // how often a directory may be removed while it is entered
)

// enter opens the directory, as open does, and holds a shared flock on it until close. So
// programs that remove what is old, such as systemd-tmpfiles, leave it alone: they want an
// exclusive one first.
func (p Place) enter(create bool) (*openPlace, error) {
	for range enterTries {
		place, err := p.open(create)
		if err != nil {
			return nil, err
		}
		err = place.lock(unix.LOCK_SH, holdLimit)
		if err == nil && place.exists() {
			return place, nil
		}
		place.close()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("fabric: %s is removed again and again while it is opened: end what removes it: %w", p.path, syscall.ESTALE)
}

// lock takes an flock, how is LOCK_SH or LOCK_EX. If another process keeps it away for longer than
// limit, the error wraps EBUSY.
func (p *openPlace) lock(how int, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(holdPause) {
		err := flock(p.fd(), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case err != unix.EWOULDBLOCK:
			return fmt.Errorf("fabric: lock directory %s: %w", p.path, err)
		case time.Now().After(end):
			return fmt.Errorf("fabric: another process, which may be stopped, has locked directory %s for %v: end it (fuser -v %[1]s), or use another directory: %[3]w",
				p.path, limit, syscall.EBUSY)
		}
	}
}

// exists reports whether the directory has not been removed.
func (p *openPlace) exists() bool {
	var st unix.Stat_t
	return unix.Fstat(p.fd(), &st) == nil && st.Nlink > 0
}
