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

// PublishSocket publishes that this process accepts connections for a TCP socket
// that listens on port. It may be called several times for a socket. A process number must be claimed
// before.
func (c *Claims) PublishSocket(port int, cookie uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := socketByte(port, cookie, c.process)
	if c.sockets[at] == 0 {
		if _, err := c.locks.lock(at); err != nil {
			return fmt.Errorf("fabric: publish a socket on port %d: %w", port, err)
		}
	}
	c.sockets[at]++
	return nil
}

// WithdrawSocket undoes one PublishSocket.
func (c *Claims) WithdrawSocket(port int, cookie uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// SocketHolder returns a process that accepts connections for a socket. It may be this
// one. ok is false if there is none.
func (c *Claims) SocketHolder(port int, cookie uint64) (process int, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := socketByte(port, cookie, 0)
	at, ok, err := c.locks.find(first, 1<<16)
	if err != nil || !ok {
		return 0, false, err
	}
	return int(at - first), true, nil
}

// AnySocket finds a socket that a process has published on port; ok is false if there is
// none.
func (c *Claims) AnySocket(port int) (s Socket, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := socketByte(port, 0, 0)
	at, ok, err := c.locks.find(first, 1<<46)
	if err != nil || !ok {
		return Socket{}, false, err
	}
	return Socket{Cookie: uint64(at-first) >> 16, Process: int((at - first) & (1<<16 - 1))}, true, nil
}
