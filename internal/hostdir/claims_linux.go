package hostdir

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

var errDirClosed = fmt.Errorf("fabric: directory: %w", os.ErrClosed)

// byteLocks are the locks on bytes of a claim file, as one process has them and finds those
// of all.
type byteLocks interface {
	// lock locks a byte. It returns false if another process has it. A byte may be locked
	// twice.
	lock(at int64) (bool, error)
	// unlock unlocks what this process has of n bytes from start, in one piece.
	unlock(start, n int64) error
	// find finds a byte that is locked, by this process or another, of n > 0 bytes from
	// start. If there are several, it need not be the first.
	find(start, n int64) (at int64, ok bool, err error)
}

// claims are what one process has claimed. Its methods wait for nothing. Between two calls
// of locks, other processes may do anything. Not safe for concurrent use.
type claims struct {
	locks   byteLocks
	process int              // own process number, 0 before claimProcess
	ports   map[int]struct{} // own ports, needed because a byte may be locked twice
	sockets map[int64]int    // by byte, how often this process has published a socket
}

func newClaims(l byteLocks) claims {
	return claims{locks: l, ports: make(map[int]struct{}), sockets: make(map[int64]int)}
}

// claimProcess claims the lowest free process number.
func (c *claims) claimProcess() (int, error) {
	if c.process != 0 {
		return c.process, nil
	}
	for n := 1; n <= maxProcess; n++ {
		ok, err := c.locks.lock(int64(n))
		if err != nil {
			return 0, fmt.Errorf("fabric: claim process %d: %w", n, err)
		}
		if ok {
			c.process = n
			return n, nil
		}
	}
	return 0, fmt.Errorf("fabric: all %d process numbers are taken: %w", maxProcess, syscall.EAGAIN)
}

// claimPort claims a port.
func (c *claims) claimPort(port int) error {
	ok, err := c.takePort(port)
	if err == nil && !ok {
		err = syscall.EADDRINUSE
	}
	if err != nil {
		return fmt.Errorf("fabric: claim port %d: %w", port, err)
	}
	return nil
}

// freePorts is how many ports there are from FirstFree on.
const freePorts = MaxPort - FirstFree + 1

// claimFreePort claims a port from FirstFree on. Its search begins at number begin of
// freePorts.
func (c *claims) claimFreePort(begin int) (int, error) {
	for i := range freePorts {
		port := FirstFree + (begin+i)%freePorts
		ok, err := c.takePort(port)
		if err != nil {
			return 0, fmt.Errorf("fabric: claim port %d: %w", port, err)
		}
		if ok {
			return port, nil
		}
	}
	return 0, fmt.Errorf("fabric: all ports from %d to %d are taken: %w", FirstFree, MaxPort, syscall.EADDRINUSE)
}

// takePort claims the port, and then publishes the holder. Between the two, other
// processes find a port without a holder, at which nothing listens yet. It returns false if
// the port is taken, by another process or this one.
func (c *claims) takePort(port int) (bool, error) {
	if _, own := c.ports[port]; own {
		return false, nil
	}
	if ok, err := c.locks.lock(portByte(port)); !ok {
		return false, err
	}
	if err := c.publishHolder(port); err != nil {
		c.dropPort(port)
		return false, err
	}
	c.ports[port] = struct{}{}
	return true, nil
}

// publishHolder publishes that this process holds a port that it has claimed.
func (c *claims) publishHolder(port int) error {
	ok, err := c.locks.lock(holderByte(port, c.process))
	if err == nil && !ok {
		err = fmt.Errorf("another program has locked the claim file: %w", syscall.EPERM)
	}
	return err
}

// dropPort unlocks both bytes of the port in one call, so that there are never two
// holders. Unlocking fails only for lack of kernel memory. Then the port stays
// taken until Close.
func (c *claims) dropPort(port int) {
	_ = c.locks.unlock(portByte(port), 1+processBytes)
}

// releasePort releases a port of this process. It does nothing for other ports.
func (c *claims) releasePort(port int) {
	if _, own := c.ports[port]; own {
		c.dropPort(port)
		delete(c.ports, port)
	}
}

// claimOwner claims the host's bridges, and a process number if this process has none.
// Between the two claims, other processes find bridges without an owner.
func (c *claims) claimOwner() (process int, err error) {
	ok, err := c.locks.lock(portByte(ownerPort))
	if err == nil && !ok {
		err = syscall.EADDRINUSE
	}
	if err != nil {
		return 0, fmt.Errorf("fabric: claim the bridges of this host: %w", err)
	}
	if process, err = c.claimProcess(); err != nil {
		return 0, err
	}
	if err = c.publishHolder(ownerPort); err != nil {
		return 0, fmt.Errorf("fabric: claim the bridges of this host: %w", err)
	}
	return process, nil
}

// holder returns the process that holds a port, which may be this one.
func (c *claims) holder(port int) (process int, ok bool, err error) {
	first := holderByte(port, 1)
	at, ok, err := c.locks.find(first, maxProcess)
	if err != nil || !ok {
		return 0, false, err
	}
	return int(at-first) + 1, true, nil
}

// processes returns all claimed process numbers, in order.
func (c *claims) processes() (all []int, err error) {
	found, err := c.scan(1, maxProcess)
	for _, at := range found {
		all = append(all, int(at))
	}
	slices.Sort(all)
	return all, err
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

// ClaimPort claims a port of this host, 1 to 65535, for this process, and returns
// it. Port 0 claims a free one from 49152 on. If the port is taken, or all are, the
// error wraps EADDRINUSE. ClaimProcess must come first.
func (d *Dir) ClaimPort(port int) (int, error) {
	if port < 0 || port > MaxPort {
		return 0, fmt.Errorf("fabric: port %d: want 0 to %d: %w", port, MaxPort, syscall.EINVAL)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return 0, errDirClosed
	case d.process == 0:
		return 0, errors.New("fabric: claim a port: no process number is claimed yet")
	case port == 0:
		// The search begins at random, so that a port that was just released is not
		// claimed by another process at once.
		return d.claimFreePort(rand.IntN(freePorts))
	}
	if err := d.claimPort(port); err != nil {
		return 0, err
	}
	return port, nil
}

// ClaimOwner claims the host's bridges and a process number. If another process
// owns them, the error wraps EADDRINUSE, and no number is claimed. ClaimProcess
// need not come first.
func (d *Dir) ClaimOwner() (process int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun(d.claimOwner())
}

// Owner returns the process that owns the host's bridges, which may be this one. ok
// is false if there is none.
func (d *Dir) Owner() (process int, ok bool, err error) { return d.holderOf(ownerPort) }

// ReleasePort releases a port that this Dir has claimed. It does nothing for other
// ports.
func (d *Dir) ReleasePort(port int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releasePort(port)
}

// Holder returns the process that holds a port, which may be this one. ok is false
// if there is none.
func (d *Dir) Holder(port int) (process int, ok bool, err error) {
	if port < 1 || port > MaxPort {
		return 0, false, fmt.Errorf("fabric: port %d: want 1 to %d: %w", port, MaxPort, syscall.EINVAL)
	}
	return d.holderOf(port)
}

func (d *Dir) holderOf(port int) (process int, ok bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holder(port)
}

// Processes returns all claimed process numbers, this process's included, in order.
// Each was claimed at some moment of the call.
func (d *Dir) Processes() ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.processes()
}

// claimed reports whether the process number is claimed.
func (d *Dir) claimed(process int) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok, err := d.locks.find(int64(process), 1)
	return ok, err
}

// claimFD is a claim file. What this process has is locked by one open file, and looked for
// through another, since the kernel reports to an open file the locks of others only.
type claimFD struct{ own, look int }

// noClaims is in the place of a claim file that is closed.
var noClaims = claimFD{-1, -1}

func (f claimFD) lock(at int64) (bool, error) {
	if f == noClaims {
		return false, errDirClosed
	}
	switch err := lockBytes(f.own, unix.F_WRLCK, at, 1); err {
	case nil:
		return true, nil
	case unix.EAGAIN, unix.EACCES:
		return false, nil
	default:
		return false, err
	}
}

func (f claimFD) unlock(start, n int64) error { return lockBytes(f.own, unix.F_UNLCK, start, n) }

func (f claimFD) find(start, n int64) (int64, bool, error) {
	if f == noClaims {
		return 0, false, errDirClosed
	}
	return locked(f.look, start, n)
}

func (f claimFD) close() {
	unix.Close(f.own)
	unix.Close(f.look)
}
