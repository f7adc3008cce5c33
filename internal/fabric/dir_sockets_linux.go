package fabric

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// socketByte is the byte that says that process accepts what comes to a TCP socket that
// listens on port:
//
//	bit 62       set: beyond all claims of ports
//	bits 46–61   port
//	bits 16–45   the lowest 30 bits of the socket's cookie
//	bits 0–15    process
//
// Cookies of one port that coincide there are told apart by the process, which is sent
// the whole of it.
func socketByte(port int, cookie uint64, process int) int64 {
	return 1<<62 | int64(port)<<46 | int64(cookie&(1<<30-1))<<16 | int64(process)
}

// PublishSocket says that this process accepts connections for a TCP socket that
// listens on port. It may be said several times. ClaimProcess comes first.
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

// WithdrawSocket takes back what PublishSocket said, once.
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
		// It fails only for want of kernel memory. Then who asks this process is refused.
		_ = lockBytes(d.claims, unix.F_UNLCK, at, 1)
	}
}

// SocketHolder finds a process that accepts connections for a socket, this one included;
// ok is false if there is none.
func (d *Dir) SocketHolder(port int, cookie uint64) (process int, ok bool, err error) {
	first := socketByte(port, cookie, 0)
	at, ok, err := d.lockedSocket(first, 1<<16)
	return int(at - first), ok, err
}

// HasSockets reports whether any process has published a socket on port.
func (d *Dir) HasSockets(port int) (bool, error) {
	_, ok, err := d.lockedSocket(socketByte(port, 0, 0), 1<<46)
	return ok, err
}

func (d *Dir) lockedSocket(first, n int64) (at int64, ok bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims < 0 {
		return 0, false, errDirClosed
	}
	return locked(d.look, first, n)
}
