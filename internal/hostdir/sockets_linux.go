package hostdir

import "fmt"

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

// publishSocket publishes that this process accepts connections for a TCP socket.
func (c *claims) publishSocket(port int, cookie uint64) error {
	at := socketByte(port, cookie, c.process)
	if c.sockets[at] == 0 {
		if _, err := c.locks.lock(at); err != nil {
			return fmt.Errorf("fabric: publish a socket on port %d: %w", port, err)
		}
	}
	c.sockets[at]++
	return nil
}

// withdrawSocket undoes one publishSocket.
func (c *claims) withdrawSocket(port int, cookie uint64) {
	at := socketByte(port, cookie, c.process)
	if c.sockets[at] == 0 {
		return
	}
	c.sockets[at]--
	if c.sockets[at] == 0 {
		delete(c.sockets, at)
		// This fails only for lack of kernel memory. Then this process refuses those who
		// ask it.
		_ = c.locks.unlock(at, 1)
	}
}

// socketHolder returns a process that accepts connections for a socket.
func (c *claims) socketHolder(port int, cookie uint64) (process int, ok bool, err error) {
	first := socketByte(port, cookie, 0)
	at, ok, err := c.locks.find(first, 1<<16)
	if err != nil || !ok {
		return 0, false, err
	}
	return int(at - first), true, nil
}

// anySocket finds a socket that a process has published on port.
func (c *claims) anySocket(port int) (s Socket, ok bool, err error) {
	first := socketByte(port, 0, 0)
	at, ok, err := c.locks.find(first, 1<<46)
	if err != nil || !ok {
		return Socket{}, false, err
	}
	return Socket{Cookie: uint64(at-first) >> 16, Process: int((at - first) & (1<<16 - 1))}, true, nil
}

// PublishSocket publishes that this process accepts connections for a TCP socket
// that listens on port. It may be called several times for a socket. ClaimProcess
// must come first.
func (d *Dir) PublishSocket(port int, cookie uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.publishSocket(port, cookie)
}

// WithdrawSocket undoes one PublishSocket.
func (d *Dir) WithdrawSocket(port int, cookie uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.withdrawSocket(port, cookie)
}

// SocketHolder returns a process that accepts connections for a socket. It may be this
// one. ok is false if there is none.
func (d *Dir) SocketHolder(port int, cookie uint64) (process int, ok bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.socketHolder(port, cookie)
}

// AnySocket finds a socket that a process has published on port; ok is false if there is
// none.
func (d *Dir) AnySocket(port int) (s Socket, ok bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.anySocket(port)
}
