package hostdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// cableOf returns the number of the process that a name of a socket belongs to, or 0 if the
// name is not that of a socket of this host.
func (p Place) cableOf(name string) int {
	rest, ok := strings.CutPrefix(name, p.prefix()+cablePrefix)
	if !ok {
		rest, ok = strings.CutPrefix(name, p.prefix()+temporaryPrefix)
	}
	digits, id, both := strings.Cut(rest, "-")
	n, err := strconv.Atoi(digits)
	if !ok || !both || err != nil || n < 1 || n > maxProcess || strconv.Itoa(n) != digits || !isID(id) {
		return 0
	}
	return n
}

// Listen listens for cables of the other processes. process is this Dir's number. A Dir
// listens once. Accept accepts the cables. The caller closes the listener before it closes
// the Dir.
func (d *Dir) Listen(process int) (*unixsock.Listener, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, err := d.listen(process)
	if err != nil {
		return nil, fmt.Errorf("fabric: listen as process %d: %w", process, err)
	}
	return l, nil
}

// listen is Listen. The caller holds mu. A name that others look for is that of a socket
// which listens, and is never used again.
func (d *Dir) listen(process int) (*unixsock.Listener, error) {
	switch {
	case process < 1 || process != d.process:
		return nil, syscall.EINVAL
	case d.closed:
		return nil, errDirClosed
	case d.cable != "":
		return nil, syscall.EADDRINUSE
	}
	if err := CheckUser(); err != nil {
		return nil, err
	}
	p := d.place
	number := strconv.Itoa(process) + "-"
	// Every user can read the temporary name in /proc/net/unix.
	temporary, name := p.prefix()+temporaryPrefix+number+newID(), p.prefix()+cablePrefix+number+newID()
	l, err := unixsock.Bind(context.Background(), socketPath(p.fd(), temporary))
	if err != nil {
		return nil, err
	}
	// The kernel gives it a mode by the umask.
	if err = unix.Fchmodat(p.fd(), temporary, p.fileMode(), 0); err == nil {
		err = unix.Renameat(p.fd(), temporary, p.fd(), name)
	}
	if err != nil {
		l.Close()
		_ = unix.Unlinkat(p.fd(), temporary, 0)
		return nil, p.denied(kernels(err))
	}
	d.cable = name
	return l, nil
}

// socketPath returns a path by which bind and connect find name in a directory that is open
// as fd. It is short however long the directory's own path is, and stays right if that is
// given to another directory. There is a /proc, or CheckUser fails.
func socketPath(fd int, name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(fd), name)
}

// removeDead removes the sockets of processes that have ended, as far as this process may:
// those of its own user, or all if it is root or owns the directory. Nobody claims the
// number of a process while its sockets are removed. It returns the names of those. Old marks of this
// user go too.
func (d *Dir) removeDead() (removed []string) {
	names, err := d.place.names()
	if err != nil {
		return nil // they are in nobody's way
	}
	remove := func(name string) {
		if unix.Unlinkat(d.place.fd(), name, 0) == nil {
			removed = append(removed, name)
		}
	}
	for _, name := range names {
		d.place.removeMark(name)
		n := d.place.cableOf(name)
		if n == 0 || name == d.cable {
			continue
		}
		if n == d.process {
			remove(name)
			continue
		}
		// Not through the open file that has the claims, since two locks of one open file
		// that are neighbours become one.
		if _, ok, err := d.locks.find(int64(n), 1); ok || err != nil || lockBytes(d.file.look, unix.F_WRLCK, int64(n), 1) != nil {
			continue
		}
		remove(name)
		_ = lockBytes(d.file.look, unix.F_UNLCK, int64(n), 1)
	}
	return removed
}

// Accept waits for the next cable, at a listener of Listen. It closes one of a process that
// does not belong to the place, without a message, and returns a *ForbiddenError. If this
// process could take other users for its own, the error wraps EPERM. Where it could not be found out
// whose process it is, Accept returns the cable too, which the caller closes.
func (d *Dir) Accept(l *unixsock.Listener) (*unixsock.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	if err := d.place.checkPeer(c, nil); err != nil {
		err = fmt.Errorf("fabric: accept: %w", err)
		if forbidden := new(ForbiddenError); errors.As(err, &forbidden) {
			c.Close()
			return nil, err
		}
		return c, err
	}
	return c, nil
}

// Connect connects a cable to a process. If there is no such process, the error
// wraps EHOSTUNREACH. If it cannot be reached, the error wraps ECONNREFUSED. If it
// does not belong to the place, or this process does not, the error wraps a *ForbiddenError. It
// wraps EPERM if this process could take other users for its own.
//
// If users are not nil, the process must be of one of them. If it is not, the error wraps ErrOtherUser,
// without waiting for anything that the process does.
func (d *Dir) Connect(ctx context.Context, process int, users []int) (*unixsock.Conn, error) {
	if err := CheckUser(); err != nil {
		return nil, err
	}
	if err := d.checkProcess(process); err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		c, err := d.try(ctx, process, users)
		switch {
		case err == nil:
			if err := d.place.checkPeer(c, users); err != nil {
				c.Close()
				return nil, fmt.Errorf("fabric: connect to process %d: %w", process, err)
			}
			return c, nil
		case errors.Is(err, syscall.ECONNREFUSED):
			if err := d.checkProcess(process); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("fabric: process %d runs but does not listen: it is just starting or ending: %w",
				process, syscall.ECONNREFUSED)
		case !errors.Is(err, syscall.EAGAIN):
			return nil, fmt.Errorf("fabric: connect to process %d: %w", process, err)
		}
		// Its queue of cables is full. Unix sockets do not wait for room in it.
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("fabric: connect to process %d, which does not accept: %w", process, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// try connects to the socket of a process. There may be others beside it, of processes that
// had the number before: nobody listens there any more. The error wraps ECONNREFUSED if
// nobody listens at any, and ErrOtherUser if besides some are of users that are not asked for.
func (d *Dir) try(ctx context.Context, process int, users []int) (*unixsock.Conn, error) {
	dir, names, err := d.cables(process)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	none := error(syscall.ECONNREFUSED)
	for _, name := range names {
		c, err := d.place.connect(ctx, dir, name, users)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, ErrOtherUser):
			none = err
		case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT):
			return nil, d.place.explain(err)
		}
	}
	return nil, none
}

// Cables identifies the process that has a number: another one may get the number later.
// If users are not nil, and only others have a socket for the number, the error wraps ErrOtherUser.
func (d *Dir) Cables(process int, users []int) (string, error) {
	dir, names, err := d.cables(process)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	var own []string
	var other error
	for _, name := range names {
		fd, err := d.place.openCable(dir, name, users)
		switch {
		case err == nil:
			unix.Close(fd)
			own = append(own, name)
		case errors.Is(err, ErrOtherUser):
			other = fmt.Errorf("fabric: process %d: %w", process, err)
		}
	}
	if len(own) == 0 && other != nil {
		return "", other
	}
	slices.Sort(own)
	return strings.Join(own, " "), nil
}

// openCable opens the file of the socket of that name in dir, but does not connect. The error wraps
// ECONNREFUSED if the name is not that of a socket which a process of the fabric has made: in the
// directory of a group, a link could lead to a socket elsewhere that its members may not reach. It
// wraps ErrOtherUser if users are not nil and none of them has made the socket.
func (p *openPlace) openCable(dir *os.File, name string, users []int) (fd int, err error) {
	fd, err = openat(int(dir.Fd()), name, unix.O_PATH) // a link itself, not where it leads
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && !p.ours(&st, unix.S_IFSOCK) {
		err = syscall.ECONNREFUSED
	}
	if err == nil && users != nil {
		err = madeBy(&st, users)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// madeBy returns ErrOtherUser unless a file is of one of users.
func madeBy(st *unix.Stat_t, users []int) error {
	owner := Peer{UID: int(st.Uid), GID: int(st.Gid)}
	if err := forgetStrangers(&owner, "/proc"); err != nil {
		return needsProc("whether a user stands for others too", err)
	}
	return isOf(owner, users)
}

// connect connects to the socket of that name in dir. Its errors are those of openCable and of
// connect(2).
func (p *openPlace) connect(ctx context.Context, dir *os.File, name string, users []int) (*unixsock.Conn, error) {
	fd, err := p.openCable(dir, name, users)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return unixsock.Dial(ctx, socketPath(fd, "")) // the file itself, whatever has the name by now
}

// cables returns the names of the sockets of a process, and another descriptor of the
// directory, which the caller closes.
func (d *Dir) cables(process int) (dir *os.File, names []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if names, err = d.place.names(); err != nil {
		return nil, nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, d.place.prefix()+cablePrefix) || d.place.cableOf(name) != process
	})
	fd, err := unix.FcntlInt(uintptr(d.place.fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), d.place.path), names, nil
}

// checkProcess returns an error unless process is claimed.
func (d *Dir) checkProcess(process int) error {
	if process < 1 || process > maxProcess {
		return fmt.Errorf("fabric: process %d: want 1 to %d: %w", process, maxProcess, syscall.EINVAL)
	}
	ok, err := d.claimed(process)
	if err == nil && !ok {
		err = fmt.Errorf("fabric: no process %d: %w", process, syscall.EHOSTUNREACH)
	}
	return err
}
