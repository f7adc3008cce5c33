package hostdir

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// socketByte returns the byte which says that process accepts connections to a TCP
// socket that listens on port:
//
//	bit 62       set: beyond all claims of ports
//	bits 46–61   port
//	bits 16–45   the lowest 30 bits of the socket's cookie
//	bits 0–15    process
//
// Two cookies of one port may have the same 30 bits. The process distinguishes them,
// since the dialler sends it the whole cookie.
func socketByte(port int, cookie uint64, process int) int64 {
	return 1<<62 | int64(port)<<46 | int64(cookie&cookieKept)<<16 | int64(process)
}

// PublishSocket publishes that this process accepts connections for a TCP socket
// that listens on port. It may be called several times for a socket. ClaimProcess
// must come first.
func (d *Dir) PublishSocket(port int, cookie uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return errDirClosed
	}
	at := socketByte(port, cookie, d.process)
	if d.sockets[at] == 0 {
		if _, err := d.take(at); err != nil {
			return fmt.Errorf("fabric: publish a socket on port %d: %w", port, err)
		}
	}
	d.sockets[at]++
	return nil
}

// WithdrawSocket undoes one PublishSocket.
func (d *Dir) WithdrawSocket(port int, cookie uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := socketByte(port, cookie, d.process)
	if d.claims < 0 || d.sockets[at] == 0 {
		return
	}
	d.sockets[at]--
	if d.sockets[at] == 0 {
		delete(d.sockets, at)
		// This fails only for lack of kernel memory. Then this process refuses those who
		// ask it.
		_ = lockBytes(d.claims, unix.F_UNLCK, at, 1)
	}
}

// SocketHolder returns a process that accepts connections for a socket. It may be this
// one. ok is false if there is none.
func (d *Dir) SocketHolder(port int, cookie uint64) (process int, ok bool, err error) {
	first := socketByte(port, cookie, 0)
	at, ok, err := d.lockedSocket(first, 1<<16)
	return int(at - first), ok, err
}

// AnySocket finds a socket that a process has published on port; ok is false if there is
// none.
func (d *Dir) AnySocket(port int) (s Socket, ok bool, err error) {
	first := socketByte(port, 0, 0)
	at, ok, err := d.lockedSocket(first, 1<<46)
	return Socket{Cookie: uint64(at-first) >> 16, Process: int((at - first) & (1<<16 - 1))}, ok, err
}

func (d *Dir) lockedSocket(first, n int64) (at int64, ok bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return 0, false, errDirClosed
	}
	return locked(d.look, first, n)
}
