package fabric

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

// ClaimProcess claims the lowest free process number, 1 to 65535, for this Dir.
// A Dir has one number: called again, it returns the same.
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

// take claims one byte. It is false if another has it. The caller holds mu.
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

// ClaimPort claims a port of this host, 1 to 65535, for this process; port 0
// picks a free one from 49152 on. It returns the port. If it is taken, or all
// are, the error wraps EADDRINUSE. ClaimProcess comes first.
func (d *Dir) ClaimPort(port int) (int, error) {
	if port < 0 || port > maxPort {
		return 0, fmt.Errorf("fabric: port %d: want 0 to %d: %w", port, maxPort, syscall.EINVAL)
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
	// A random beginning, so that a port that was just given back is not at
	// once another's.
	const n = maxPort - firstFree + 1
	begin := rand.IntN(n)
	for i := range n {
		port := firstFree + (begin+i)%n
		ok, err := d.takePort(port)
		if err != nil {
			return 0, fmt.Errorf("fabric: claim port %d: %w", port, err)
		}
		if ok {
			return port, nil
		}
	}
	return 0, fmt.Errorf("fabric: all ports from %d to %d are taken: %w", firstFree, maxPort, syscall.EADDRINUSE)
}

// takePort claims the port, and then says who holds it: who looks between the
// two finds a port without a holder, at which nobody listens yet. The caller
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

// dropPort drops both bytes of the port in one call, so that there are never
// two holders. Unlocking fails only for want of kernel memory; then the port
// stays taken until Close.
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
	// Who looks between the two finds bridges without an owner, as before.
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

// Owner tells which process owns the host's bridges, this one included; ok is
// false if none does.
func (d *Dir) Owner() (process int, ok bool, err error) { return d.holderOf(ownerPort) }

// ReleasePort gives back a port that this Dir has claimed; it does nothing for
// others.
func (d *Dir) ReleasePort(port int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, own := d.ports[port]; own {
		d.dropPort(port)
		delete(d.ports, port)
	}
}

// Holder tells which process holds a port, this one included; ok is false if
// none does.
func (d *Dir) Holder(port int) (process int, ok bool, err error) {
	if port < 1 || port > maxPort {
		return 0, false, fmt.Errorf("fabric: port %d: want 1 to %d: %w", port, maxPort, syscall.EINVAL)
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

// Processes are all claimed process numbers, this process's included, in order.
// Each was claimed at some moment of the call.
func (d *Dir) Processes() ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return nil, errDirClosed
	}
	var found []int
	// The kernel names any one lock of a range, so look on both sides of it.
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

// claimed tells if the process number is claimed.
func (d *Dir) claimed(process int) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return false, errDirClosed
	}
	_, ok, err := locked(d.look, int64(process), 1)
	return ok, err
}
