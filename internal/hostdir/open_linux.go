package hostdir

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Dir is this process's place in the directory of a local fabric. Its methods may
// be called from several goroutines at the same time. A process may open several,
// which count as different processes.
type Dir struct {
	place *openPlace // immutable; open until Close
	watch watch

	*Claims // of file; its mutex guards the following, too
	file    claimFD
	cable   string // name of the socket where this process listens, "" before Listen
}

// Open opens a place, and makes it if it does not exist and create is set and that is
// allowed; if it is not there, the error wraps fs.ErrNotExist. If it is not as the Place
// wants it, the error wraps EPERM or EACCES and says what to do. It wraps EPERM also if
// other users may have this process' uid, and ntb.ErrVersion while processes of another version
// use the place.
func Open(p Place, create bool) (*Dir, error) {
	place, err := p.enter(create)
	if err != nil {
		return nil, err
	}
	f, err := place.openClaims(create)
	if err != nil {
		place.close()
		return nil, place.denied(err)
	}
	return &Dir{place: place, file: f, Claims: newClaims(f)}, nil
}

// openat opens name in the directory at. It follows no link, and continues after
// signals.
func openat(at int, name string, flags int) (fd int, err error) {
	err = uninterrupted(func() error {
		fd, err = unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	return fd, err
}

// ClaimProcess claims the lowest free process number, 1 to 65535, for this Dir. A
// Dir has one number. A second call returns the same one.
func (d *Dir) ClaimProcess() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun(d.claimProcess())
}

// begun is the end of a claim of a process number. The error wraps ESTALE if the directory was
// removed since this Dir opened it. While a process has a claim, nobody removes it.
func (d *Dir) begun(process int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	if err := hasName(d.file.own, d.place.path); err != nil {
		return 0, err
	}
	d.removeDead()
	return process, nil
}

// ClaimOwner claims the host's bridges and a process number. If another process
// owns them, the error wraps EADDRINUSE, and no number is claimed. ClaimProcess
// need not come first.
func (d *Dir) ClaimOwner() (process int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun(d.claimOwner())
}

// Path returns the path of the fabric's directory.
func (d *Dir) Path() string { return d.place.path }

// Close drops all claims and removes the socket of Listen. It may be called twice, but not at the
// same time. Listeners
// and cables stay open.
func (d *Dir) Close() error {
	d.watch.stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.cable != "" {
		// While the number is claimed, nobody else removes it. If somebody has removed the
		// whole directory, it is gone already.
		_ = unix.Unlinkat(d.place.fd(), d.cable, 0)
	}
	// A child process that is just being started shares the open file until it runs
	// its program. So closing alone might leave the locks for a moment.
	err := d.drop()
	d.file.close()
	d.place.close()
	if err != nil {
		return fmt.Errorf("fabric: drop claims: %w", err)
	}
	return nil
}
