package shmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// channel carries this PE's requests to another PE. It is one connection, whose other
// direction carries the replies.
//
// The other PE's server waits until its replies have room, and takes no request
// meanwhile. So a sender must not wait for room while unread replies may fill the
// queue. Two rules ensure this. The requests sent since the oldest unread reply are
// limited to what the smallest queue holds. And all replies are read before a long put.
type channel struct {
	pe   int
	conn net.Conn

	mu      lock.Mutex[lock.Channel]
	buf     [requestBytes + smallPut]byte // one request; guarded by mu
	in      [replyBytes + smallPut]byte   // one reply; guarded by mu
	word    [16]byte                      // the reply that fetch waits for; guarded by mu
	blocks  []byte                        // gathered blocks of a strided put; guarded by mu
	number  uint32                        // number of the last request with a reply; guarded by mu
	waiting []reply                       // replies not read yet, in their order; guarded by mu
	bytes   int                           // data of the replies not read yet; guarded by mu
	sent    uint64                        // bytes that all requests took of the queue; guarded by mu
	unacked bool                          // a request without a reply was sent since the last acknowledgement; guarded by mu
	err     error                         // the first error; guarded by mu
}

// reply says where the data of a reply goes.
type reply struct {
	number uint32
	dst    []byte
	n      int    // bytes of data
	sent   uint64 // channel.sent, including its request
	// If stride is not 0, the data is scattered in dst: blocks that lie stride
	// apart.
	block, stride int
}

func (r *reply) short() bool { return r.stride == 0 && r.n <= smallPut }

const (
	smallPut   = 208 // data that goes with its request in one record of four lines
	maxWaiting = 16
	maxBytes   = 2 * maxGet
	// maxBehind is the most that requests behind an unread reply may take of the queue.
	// The smallest queue has 2 KiB. A quarter may be read and not credited yet, as much
	// again may be skipped at its end, and 256 bytes are for other things.
	maxBehind = 768
)

// taken returns what a request of n bytes takes of the queue. That is whole cache
// lines, with the header of its record.
func taken(n int) uint64 { return uint64(n+8+areaLine-1) &^ (areaLine - 1) }

// send sends a request, with data of up to smallPut bytes. The caller holds mu.
func (c *channel) send(r *request, data []byte) error {
	if c.err != nil {
		return c.err
	}
	c.sent += taken(requestBytes + len(data))
	for len(c.waiting) > 0 && c.sent-c.waiting[0].sent > maxBehind {
		if err := c.drain(len(c.waiting) - 1); err != nil {
			return err
		}
	}
	r.encode(c.buf[:])
	n := requestBytes + copy(c.buf[requestBytes:], data)
	_, err := c.conn.Write(c.buf[:n])
	return c.failed(err)
}

// failed ends the channel at the first error, since half a request may have been
// written. The other PE notices the end, and ends its own channel. The caller holds mu.
func (c *channel) failed(err error) error {
	if err != nil && c.err == nil {
		c.err = err
		go c.conn.Close() // Close may wait for a while
	}
	return c.err
}

// do sends a request that has no reply, with data of up to smallPut bytes.
func (c *channel) do(r *request, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unacked = true
	return c.send(r, data)
}

// doLong is do for data of any length. It is separate because data that is passed
// to it escapes to the heap.
func (c *channel) doLong(r *request, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.long(r, data)
}

// long is doLong for a caller that holds mu.
func (c *channel) long(r *request, data []byte) error {
	c.unacked = true
	if len(data) <= smallPut {
		return c.send(r, data)
	}
	if err := c.drain(0); err != nil {
		return err
	}
	if err := c.send(r, nil); err != nil {
		return err
	}
	_, err := c.conn.Write(data)
	return c.failed(err)
}

// tell sends a request that has no effect on memory.
func (c *channel) tell(op operation, status int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(&request{op: op, c: uint64(status)}, nil)
}

// ask sends a request whose reply goes to to. It first reads older replies if there
// are too many. The caller holds mu.
func (c *channel) ask(r *request, to reply) error {
	for len(c.waiting) >= maxWaiting || len(c.waiting) > 0 && c.bytes+to.n > maxBytes {
		if err := c.drain(len(c.waiting) - 1); err != nil {
			return err
		}
	}
	c.number++
	if c.number == 0 {
		c.number = 1
	}
	r.number, to.number = c.number, c.number
	if err := c.send(r, nil); err != nil {
		return err
	}
	to.sent = c.sent
	c.waiting = append(c.waiting, to)
	c.bytes += to.n
	return nil
}

// get asks for bytes of the other PE's heap, in pieces. They are there when drain
// has returned. The caller holds mu.
func (c *channel) get(off uintptr, dst []byte) error {
	for len(dst) > 0 {
		n := min(len(dst), maxGet)
		if err := c.ask(&request{op: opGet, off: uint64(off), a: uint64(n)}, reply{dst: dst[:n], n: n}); err != nil {
			return err
		}
		off += uintptr(n)
		dst = dst[n:]
	}
	return nil
}

// drain reads replies until only keep are left. The caller holds mu.
func (c *channel) drain(keep int) error {
	for len(c.waiting) > keep {
		r := c.waiting[0]
		n := replyBytes
		if r.short() {
			n += r.n // merges with the reply before it
		}
		if err := c.read(c.in[:n]); err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(c.in[:]) != r.number {
			return c.failed(errors.New("a reply to no request"))
		}
		if r.short() {
			copy(r.dst, c.in[replyBytes:n])
		} else if err := c.scatter(r); err != nil {
			return err
		}
		c.waiting = c.waiting[:copy(c.waiting, c.waiting[1:])]
		c.bytes -= r.n
	}
	return nil
}

func (c *channel) scatter(r reply) error {
	if r.stride == 0 {
		return c.read(r.dst)
	}
	for at := 0; at < len(r.dst); at += r.stride {
		if err := c.read(r.dst[at : at+r.block]); err != nil {
			return err
		}
	}
	return nil
}

func (c *channel) read(p []byte) error {
	if len(p) == 0 {
		return c.err
	}
	_, err := io.ReadFull(c.conn, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("it has ended: %w", net.ErrClosed)
	}
	return c.failed(err)
}

// fetch sends a request, and waits for its reply of up to 16 bytes.
func (c *channel) fetch(r *request, dst []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.ask(r, reply{dst: c.word[:len(dst)], n: len(dst)})
	if err == nil {
		err = c.drain(0)
	}
	if err == nil {
		copy(dst, c.word[:])
	}
	return err
}

// fetchTo sends a request whose reply is stored at dst by the time quiet returns.
func (c *channel) fetchTo(r *request, dst []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ask(r, reply{dst: dst, n: len(dst)})
}

// quiet waits until all requests are done and all replies are read. If begin is
// true it only sends the request for an acknowledgement, so that several channels
// can be asked at once.
func (c *channel) quiet(begin bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if begin {
		if !c.unacked || c.err != nil {
			return c.err
		}
		c.unacked = false
		return c.ask(&request{op: opAck}, reply{})
	}
	return c.drain(0)
}
