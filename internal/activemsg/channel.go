package activemsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Channel carries this PE's requests to another PE. It is one connection, whose other
// direction carries the replies.
//
// The other PE's server waits until its replies have room, and takes no request
// meanwhile. So a sender must not wait for room while unread replies may fill the
// queue. Two rules ensure this. The requests sent since the oldest unread reply are
// limited to what the smallest queue holds. And all replies are read before a long put.
type Channel struct {
	conn net.Conn // immutable

	behind atomic.Bool // see Behind; set under mu
	stored atomic.Bool // see Stored; cleared under mu

	// mu guards the following.
	mu      lock.Mutex[lock.Channel]
	buf     [requestBytes + smallPut]byte // one request
	in      [replyBytes + smallPut]byte   // one reply
	element [16]byte                      // the reply that word waits for
	blocks  []byte                        // gathered blocks of a strided put
	number  uint32                        // number of the last request with a reply
	waiting []reply                       // replies not read yet, in their order
	sent    uint64                        // bytes that all requests took of the queue
	unacked bool                          // a request without a reply was sent since the last acknowledgement
	err     error                         // the first error
}

// NewChannel makes the channel of a connection, over which the PEs have greeted each other.
func NewChannel(conn net.Conn) *Channel { return &Channel{conn: conn} }

// ErrReply ends a channel whose other PE does not keep to the protocol.
var ErrReply = errors.New("a reply to no request")

// reply says where the data of a reply goes.
type reply struct {
	number uint32
	dst    []byte
	n      int    // bytes of data
	sent   uint64 // Channel.sent, including its request
	// If stride is not 0, the data is scattered in dst: blocks that lie stride
	// apart.
	block, stride int
}

func (r *reply) short() bool { return r.stride == 0 && r.n <= smallPut }

const (
	smallPut   = 208 // data that goes with its request in one record of four lines
	maxWaiting = 16
	// maxBehind is the most that requests behind an unread reply may take of the queue.
	// The smallest queue has 2 KiB. A quarter may be read and not credited yet, as much
	// again may be skipped at its end, and 256 bytes are for other things.
	maxBehind = 768
)

// taken returns what a request of n bytes takes of the queue. That is whole cache
// lines, with the header of its record.
func taken(n int) uint64 { return uint64(n+8+symheap.LineBytes-1) &^ (symheap.LineBytes - 1) }

// send sends a request, with data of up to smallPut bytes. The caller holds mu.
func (c *Channel) send(r *request, data []byte) error {
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
// written. The other PE notices that, and ends its own channel. The caller holds mu.
func (c *Channel) failed(err error) error {
	if err != nil && c.err == nil {
		c.err = err
		go c.conn.Close() // Close may wait for a while
	}
	return c.err
}

// PutShort stores up to 208 bytes at an offset. Unlike Put, it lets data stay on the
// caller's stack.
func (c *Channel) PutShort(off uintptr, data []byte) error {
	return c.do(&request{op: opPut, off: uint64(off), a: uint64(len(data))}, data)
}

// Tell stores the word v at an offset, after what was put before. A later Ack does not cover it: it is for
// words that the other PE waits for before it uses its memory for anything else.
func (c *Channel) Tell(off uintptr, v uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], v)
	return c.send(&request{op: opPut, off: uint64(off), a: uint64(len(word))}, word[:])
}

// Do does an atomic operation on a word of size bytes, and fetches nothing. Its operands
// are those of symheap.Atomic.
func (c *Channel) Do(op symheap.Op, off, size uintptr, v, cond uint64) error {
	r := atomicRequest(op, off, size, v, cond)
	return c.do(&r, nil)
}

func atomicRequest(op symheap.Op, off, size uintptr, v, cond uint64) request {
	return request{op: opAtomic, amo: op, width: uint8(size), off: uint64(off), a: v, b: cond}
}

// Behind reports whether requests that store may not be done, so that what is stored in another way would come before
// them. Quiet has them done.
func (c *Channel) Behind() bool { return c.behind.Load() }

// Stored says that something was stored to the PE in another way, of which requests come behind: over the same bridge.
// The next Ack asks for that as well.
func (c *Channel) Stored() {
	if !c.stored.Load() {
		c.stored.Store(true)
	}
}

// begin notes a request that stores and has not been answered. The caller holds mu.
func (c *Channel) begin() {
	if !c.behind.Load() {
		c.behind.Store(true)
	}
}

// do sends a request that has no reply, with data of up to smallPut bytes.
func (c *Channel) do(r *request, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unacked = true
	c.begin()
	return c.send(r, data)
}

// Put stores data at an offset. It returns when data may be used again.
func (c *Channel) Put(off uintptr, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.long(&request{op: opPut, off: uint64(off), a: uint64(len(data))}, data)
}

// long sends a request that has no reply, with data of any length. The caller holds mu.
func (c *Channel) long(r *request, data []byte) error {
	c.unacked = true
	c.begin()
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

// Wake makes the other PE's sleepers poll again.
func (c *Channel) Wake() error { return c.tell(opWake, 0) }

// Bye sends the last request.
func (c *Channel) Bye() error { return c.tell(opBye, 0) }

// Exit says that the job ends with a status.
func (c *Channel) Exit(status int) error { return c.tell(opExit, status) }

// Dead says that PE pe has ended.
func (c *Channel) Dead(pe int) error { return c.tell(opDead, pe) }

// Close closes the connection. It may wait until what was sent is there.
func (c *Channel) Close() error { return c.conn.Close() }

// SetDeadline limits how long requests and replies wait.
func (c *Channel) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// tell sends a request that has no effect on memory.
func (c *Channel) tell(op operation, status int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(&request{op: op, c: uint64(status)}, nil)
}

// ask sends a request whose reply goes to to. It first reads older replies if there
// are too many. The caller holds mu.
func (c *Channel) ask(r *request, to reply) error {
	for len(c.waiting) >= maxWaiting {
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
	return nil
}

// get asks for bytes of the other PE's heap, in pieces. They are there when drain
// has returned. The caller holds mu.
func (c *Channel) get(off uintptr, dst []byte) error {
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
func (c *Channel) drain(keep int) error {
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
			return c.failed(ErrReply)
		}
		if r.short() {
			copy(r.dst, c.in[replyBytes:n])
		} else if err := c.scatter(r); err != nil {
			return err
		}
		c.waiting = c.waiting[:copy(c.waiting, c.waiting[1:])]
	}
	return nil
}

func (c *Channel) scatter(r reply) error {
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

func (c *Channel) read(p []byte) error {
	if len(p) == 0 {
		return c.err
	}
	_, err := io.ReadFull(c.conn, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("it has ended: %w", net.ErrClosed)
	}
	return c.failed(err)
}

// Fetch does an atomic operation on a word of size bytes, and returns what was there.
func (c *Channel) Fetch(op symheap.Op, off, size uintptr, v, cond uint64) (uint64, error) {
	r := atomicRequest(op, off, size, v, cond)
	old, _, err := c.word(&r, int(size))
	return old, err
}

// FetchTo is Fetch that stores what was there at old, of size bytes, by the time Quiet
// returns.
func (c *Channel) FetchTo(old []byte, op symheap.Op, off uintptr, v, cond uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin()
	r := atomicRequest(op, off, uintptr(len(old)), v, cond)
	return c.ask(&r, reply{dst: old, n: len(old)})
}

// Load returns the element of size bytes at an offset, as symheap.Load does.
func (c *Channel) Load(off, size uintptr) (lo, hi uint64, err error) {
	return c.word(&request{op: opGet, off: uint64(off), a: uint64(size)}, int(size))
}

// word sends a request, and waits for its reply of n bytes, up to 16.
func (c *Channel) word(r *request, n int) (lo, hi uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.element[:])
	err = c.ask(r, reply{dst: c.element[:n], n: n})
	if err == nil {
		err = c.drain(0)
	}
	if err != nil {
		return 0, 0, err
	}
	return binary.NativeEndian.Uint64(c.element[:]), binary.NativeEndian.Uint64(c.element[8:]), nil
}

// Get copies bytes at an offset to dst. They are there when it returns if wait is true, or
// else when Quiet does.
func (c *Channel) Get(off uintptr, dst []byte, wait bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.get(off, dst)
	if err == nil && wait {
		err = c.drain(0)
	}
	return err
}

// Ack asks for an acknowledgement of all requests before, if there is any that has no
// reply, and of what Stored speaks of. So several channels can be asked at once, before Quiet.
func (c *Channel) Ack() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || !c.unacked && !c.stored.Load() {
		return c.err
	}
	c.unacked = false
	c.stored.Store(false) // before the request, which comes behind all that was stored until now
	return c.ask(&request{op: opAck}, reply{})
}

// Quiet waits until all replies are read, that of Ack too.
func (c *Channel) Quiet() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.drain(0)
	if err == nil && !c.unacked {
		c.behind.Store(false)
	}
	return err
}
