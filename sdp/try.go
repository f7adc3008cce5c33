package sdp

import "runtime"

// TryRead is Read that does not wait: where it would, for data or for another call, the error wraps syscall.EAGAIN. It
// returns what has arrived of a Write, and does not wait for the rest.
func (c *Conn) TryRead(p []byte) (int, error) {
	n, err := c.pair.TryRead(p)
	raceAcquire(c.pair)
	runtime.KeepAlive(c)
	return n, c.opError(opRead, err)
}

// TryWrite is Write that does not wait: it writes as much as there is room for. If that is less than p, the error
// wraps syscall.EAGAIN.
func (c *Conn) TryWrite(p []byte) (int, error) {
	raceRelease(c.pair)
	n, err := c.pair.TryWrite(p)
	runtime.KeepAlive(c)
	return n, c.opError(opWrite, err)
}

// WaitRead waits until a Read would not wait, and reads nothing: data and the errors of Read are left to that. Other
// Reads wait meanwhile, and TryRead returns. The errors are net.ErrClosed and os.ErrDeadlineExceeded.
func (c *Conn) WaitRead() error {
	err := c.opError(opRead, c.pair.WaitRead())
	raceAcquire(c.pair)
	runtime.KeepAlive(c)
	return err
}

// WaitWrite waits until TryWrite would write something, or fail, likewise. Other Writes wait meanwhile.
func (c *Conn) WaitWrite() error {
	err := c.opError(opWrite, c.pair.WaitWrite())
	runtime.KeepAlive(c)
	return err
}
