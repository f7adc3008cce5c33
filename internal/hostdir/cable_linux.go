package hostdir

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cableName returns the address where process listens for cables: an abstract
// socket, which ends with its process.
func (d *Dir) cableName(process int) string {
	return "@ntbnet-" + d.id + "-" + strconv.Itoa(process)
}

// Listen listens for cables of the other processes. process is this Dir's number.
// AcceptPeer accepts them. The caller closes the listener before it closes the Dir.
func (d *Dir) Listen(process int) (*net.UnixListener, error) {
	d.mu.Lock()
	own := d.process
	d.mu.Unlock()
	if process < 1 || process != own {
		return nil, fmt.Errorf("fabric: listen as process %d: %w", process, syscall.EINVAL)
	}
	if err := checkUser(); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.cableName(process), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("fabric: listen as process %d: %w", process, err)
	}
	return l, nil
}

// AcceptPeer waits for the next cable of a process of this user. It closes those of
// other users without a message. If this process could take other users for its
// own, the error wraps EPERM.
func AcceptPeer(l *net.UnixListener) (*net.UnixConn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if checkPeer(c) == nil {
			return c, nil
		}
		c.Close()
		if err := checkUser(); err != nil {
			return nil, err
		}
	}
}

// Connect connects a cable to a process. If there is no such process, the error
// wraps EHOSTUNREACH. If it cannot be reached, the error wraps ECONNREFUSED. If it
// is another user's, or this process could take other users for its own, the error
// wraps EPERM.
func (d *Dir) Connect(ctx context.Context, process int) (*net.UnixConn, error) {
	if err := checkUser(); err != nil {
		return nil, err
	}
	if err := d.checkProcess(process); err != nil {
		return nil, err
	}
	var dialer net.Dialer
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		c, err := dialer.DialContext(ctx, "unix", d.cableName(process))
		switch {
		case err == nil:
			cable := c.(*net.UnixConn)
			if err := checkPeer(cable); err != nil {
				cable.Close()
				return nil, fmt.Errorf("fabric: connect to process %d: %w", process, err)
			}
			return cable, nil
		case errors.Is(err, syscall.ECONNREFUSED):
			if err := d.checkProcess(process); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("fabric: process %d runs but does not listen: it is just starting or ending, or in another network namespace (container): %w",
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

// checkPeer returns an error unless the process at the other end has this user, and
// this process can tell the user from others.
func checkPeer(c *net.UnixConn) error {
	if err := checkUser(); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = credErr
	}
	if err != nil {
		return fmt.Errorf("ask for the peer's user: %w", err)
	}
	if uid := os.Geteuid(); int(cred.Uid) != uid {
		return fmt.Errorf("the peer is uid %d, and this process is uid %d: %w", cred.Uid, uid, syscall.EPERM)
	}
	return nil
}
