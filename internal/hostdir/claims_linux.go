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

// ClaimProcess claims the lowest free process number, 1 to 65535, for this Dir. A
// Dir has one number. A second call returns the same one.
func (d *Dir) ClaimProcess() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return 0, errDirClosed
	}
	if d.process != 0 {
		return d.process, nil
	}
	for n := 1; n <= maxProcess; n++ {
		ok, err := d.take(int64(n))
		if err != nil {
			return 0, fmt.Errorf("fabric: claim process %d: %w", n, err)
		}
		if ok {
			d.process = n
			return n, nil
		}
	}
	return 0, fmt.Errorf("fabric: all %d process numbers are taken: %w", maxProcess, syscall.EAGAIN)
}

// take claims one byte. It returns false if another process has it. The caller
// holds mu.
func (d *Dir) take(at int64) (bool, error) {
	switch err := lockBytes(d.claims, unix.F_WRLCK, at, 1); err {
	case nil:
		return true, nil
	case unix.EAGAIN, unix.EACCES:
		return false, nil
	default:
		return false, err
	}
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
	if d.claims < 0 {
		return 0, errDirClosed
	}
	if d.process == 0 {
		return 0, errors.New("fabric: claim a port: no process number is claimed yet")
	}
	if port != 0 {
		ok, err := d.takePort(port)
		if err == nil && !ok {
			err = syscall.EADDRINUSE
		}
		if err != nil {
			return 0, fmt.Errorf("fabric: claim port %d: %w", port, err)
		}
		return port, nil
	}
	// The search begins at random, so that a port that was just released is not
	// claimed by another process at once.
	const n = MaxPort - FirstFree + 1
	begin := rand.IntN(n)
	for i := range n {
		port := FirstFree + (begin+i)%n
		ok, err := d.takePort(port)
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
// processes find a port without a holder, at which nothing listens yet. The caller
// holds mu.
func (d *Dir) takePort(port int) (bool, error) {
	if _, own := d.ports[port]; own {
		return false, nil
	}
	if ok, err := d.take(portByte(port)); !ok {
		return false, err
	}
	ok, err := d.take(holderByte(port, d.process))
	if err == nil && !ok {
		err = fmt.Errorf("another program has locked the claim file: %w", syscall.EPERM)
	}
	if err != nil {
		d.dropPort(port)
		return false, err
	}
	d.ports[port] = struct{}{}
	return true, nil
}

// dropPort unlocks both bytes of the port in one call, so that there are never two
// holders. Unlocking fails only for lack of kernel memory. Then the port stays
// taken until Close.
func (d *Dir) dropPort(port int) {
	_ = lockBytes(d.claims, unix.F_UNLCK, portByte(port), 1+processBytes)
}

// ClaimOwner claims the host's bridges and a process number. If another process
// owns them, the error wraps EADDRINUSE, and no number is claimed. ClaimProcess
// need not come first.
func (d *Dir) ClaimOwner() (process int, err error) {
	d.mu.Lock()
	if d.claims < 0 {
		d.mu.Unlock()
		return 0, errDirClosed
	}
	ok, err := d.take(portByte(ownerPort))
	d.mu.Unlock()
	if err == nil && !ok {
		err = syscall.EADDRINUSE
	}
	if err != nil {
		return 0, fmt.Errorf("fabric: claim the bridges of this host: %w", err)
	}
	// Between the two claims, other processes find bridges without an owner, as
	// before.
	if process, err = d.ClaimProcess(); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return 0, errDirClosed
	}
	ok, err = d.take(holderByte(ownerPort, process))
	if err == nil && !ok {
		err = fmt.Errorf("another program has locked the claim file: %w", syscall.EPERM)
	}
	if err != nil {
		return 0, fmt.Errorf("fabric: claim the bridges of this host: %w", err)
	}
	return process, nil
}

// Owner returns the process that owns the host's bridges, which may be this one. ok
// is false if there is none.
func (d *Dir) Owner() (process int, ok bool, err error) { return d.holderOf(ownerPort) }

// ReleasePort releases a port that this Dir has claimed. It does nothing for other
// ports.
func (d *Dir) ReleasePort(port int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, own := d.ports[port]; own {
		d.dropPort(port)
		delete(d.ports, port)
	}
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
	if d.claims < 0 {
		return 0, false, errDirClosed
	}
	first := holderByte(port, 1)
	at, ok, err := locked(d.look, first, maxProcess)
	if err != nil || !ok {
		return 0, false, err
	}
	return int(at-first) + 1, true, nil
}

// Processes returns all claimed process numbers, this process's included, in order.
// Each was claimed at some moment of the call.
func (d *Dir) Processes() ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return nil, errDirClosed
	}
	var found []int
	// The kernel reports any one lock of a range. So look then searches on both
	// sides of it.
	var look func(first, last int64) error
	look = func(first, last int64) error {
		if first > last {
			return nil
		}
		at, ok, err := locked(d.look, first, last-first+1)
		if err != nil || !ok {
			return err
		}
		found = append(found, int(at))
		if err := look(first, at-1); err != nil {
			return err
		}
		return look(at+1, last)
	}
	if err := look(1, maxProcess); err != nil {
		return nil, err
	}
	slices.Sort(found)
	return found, nil
}

// claimed reports whether the process number is claimed.
func (d *Dir) claimed(process int) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return false, errDirClosed
	}
	_, ok, err := locked(d.look, int64(process), 1)
	return ok, err
}
