package mplite

import (
	"context"
	"fmt"
	"math"

	"github.com/ntbnet/ntbnet/shmem"
)

// AnySource and AnyTag, passed to a receive or probe, stand for all PEs and all
// tags.
const (
	AnySource = -1
	AnyTag    = -1
)

// Last describes the message of a call: its source, its tag, and its size in bytes.
// For a send, Source is this PE.
type Last struct{ Source, Tag, Size int }

// Request is a send or receive that is under way. The package owns its buffer until
// Wait has returned, or Test has returned true.
type Request struct {
	// Immutable.
	c    *Comm
	buf  []byte
	peer int // destination, or source, or AnySource
	tag  int32
	send bool

	finished bool
	last     Last
	err      error // of this request alone: ErrTooLong, or the error of the Comm when it began

	granted int // bytes of an announced message that were asked for
	at      int // of them, those that have arrived or were sent

	ignored bool // send: a posted receive was there and not used

	sym    shmem.Sym[byte] // receive: buf, if direct
	direct bool            // receive: data may be put straight into buf
	posted bool            // receive: the sender knows of it
	post   uint32          // its number, if posted
}

func newRequest[T shmem.Elem](c *Comm, buf []T, peer, tag int) *Request {
	var r *Request
	if n := len(c.spare); n > 0 {
		r, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		r = new(Request)
	}
	*r = Request{c: c, buf: bytesOf(buf), peer: peer, tag: int32(tag)}
	return r
}

// again keeps a request for reuse by another call. The program has no reference to
// it.
func (c *Comm) again(r *Request) {
	if r.finished && len(c.spare) < 16 {
		*r = Request{}
		c.spare = append(c.spare, r)
	}
}

func checkTag(tag, least int) {
	if tag < least || tag > math.MaxInt32 {
		panic(fmt.Sprintf("mplite: tag %d: want %d to %d", tag, least, math.MaxInt32))
	}
}

// Send sends buf to PE to. It returns when buf may be used again. That is so when the
// message was put into a receive that was posted there, fits into its header, fits
// into this PE's send buffers, or was received.
//
// Errors are those of Request.Wait. If ctx ends first, the send goes on, and buf may
// not be used. A program that wants to wait for it later calls ASend and Wait
// instead. Send panics if there is no such PE, or tag is below 0.
func Send[T shmem.Elem](ctx context.Context, c *Comm, buf []T, to, tag int) error {
	c.begin()
	defer c.leave()
	r := asend(c, buf, to, tag)
	_, err := c.finish(ctx, r)
	c.again(r)
	return err
}

// ASend begins to send buf to PE to, and does not wait. A message that finds no
// posted receive, and does not fit into its header, stays in buf until the next call
// that waits or tests.
func ASend[T shmem.Elem](c *Comm, buf []T, to, tag int) *Request {
	c.begin()
	defer c.leave()
	return asend(c, buf, to, tag)
}

func asend[T shmem.Elem](c *Comm, buf []T, to, tag int) *Request {
	c.checkPE(to)
	checkTag(tag, 0)
	r := newRequest(c, buf, to, tag)
	r.send = true
	r.last = Last{c.me, tag, len(r.buf)}
	if c.err != nil {
		r.err, r.finished = c.err, true
		return r
	}
	c.unsent++
	l := &c.links[to]
	l.hear()
	l.sends = append(l.sends, r)
	l.push(false)
	if err := c.ctx.Err(); err != nil {
		c.fail(err)
		if r.finished {
			r.err = err
		}
	}
	return r
}

// Recv receives a message with the tag from PE from into buf, and says which it was.
// from may be AnySource, tag AnyTag. The message may be shorter than buf.
//
// If buf is symmetric memory, such as a part of a Sym's Local, and from is one PE, a
// message that is sent later is put straight there. Errors are those of Request.Wait.
// If ctx ends first, the receive goes on, and takes its message. A program that wants
// to wait for it later calls ARecv and Wait instead.
func Recv[T shmem.Elem](ctx context.Context, c *Comm, buf []T, from, tag int) (Last, error) {
	c.begin()
	defer c.leave()
	r := arecv(c, buf, from, tag)
	last, err := c.finish(ctx, r)
	c.again(r)
	return last, err
}

// ARecv begins what Recv does, and does not wait.
func ARecv[T shmem.Elem](c *Comm, buf []T, from, tag int) *Request {
	c.begin()
	defer c.leave()
	return arecv(c, buf, from, tag)
}

func arecv[T shmem.Elem](c *Comm, buf []T, from, tag int) *Request {
	if from != AnySource {
		c.checkPE(from)
	}
	checkTag(tag, AnyTag)
	r := newRequest(c, buf, from, tag)
	if c.err != nil {
		r.err, r.finished = c.err, true
		return r
	}
	c.advance(false, nil)
	if !c.unexpected(r) {
		c.pending = append(c.pending, r)
		if from != AnySource && len(r.buf) > inHeader {
			if r.sym, r.direct = shmem.Find(c.w, r.buf); r.direct {
				c.postable++
			}
		}
		c.pause()
		c.post(len(c.pending) - 1)
	}
	return r
}

// Wait waits until the request is done. For a receive it returns which message it has
// got.
//
// It returns ErrTooLong, or the error of ctx, after which Wait may be called again. If
// a PE ends, the error is a *shmem.DeadError. After that, or another failure of the
// fabric, all calls fail.
func (r *Request) Wait(ctx context.Context) (Last, error) {
	r.c.begin()
	defer r.c.leave()
	return r.c.finish(ctx, r)
}

func (c *Comm) finish(ctx context.Context, r *Request) (Last, error) {
	if !r.finished {
		if err := c.until(ctx, !r.send, func() bool { return r.finished }); err != nil {
			return Last{}, err
		}
	}
	return r.last, r.err
}

// Test reports whether the request is done, without waiting. Once it is, Wait
// returns its result. Errors are those of Wait.
func (r *Request) Test() (bool, error) {
	c := r.c
	c.begin()
	defer c.leave()
	if !r.finished {
		if err := c.poll(!r.send, func() bool { return r.finished }); err != nil {
			return false, err
		}
	}
	return r.finished, r.err
}

// Probe waits for a message with the tag from PE from for which there is no receive,
// and describes it. A receive with the same arguments gets that message next, unless
// from is AnySource. In that case, receive from Last.Source. Errors are those of Wait.
func (c *Comm) Probe(ctx context.Context, from, tag int) (last Last, err error) {
	c.checkProbe(from, tag)
	c.begin()
	defer c.leave()
	err = c.until(ctx, true, func() bool { return c.probe(from, tag, &last) })
	return last, err
}

// AProbe reports whether there is a message as Probe waits for, without waiting.
func (c *Comm) AProbe(from, tag int) (last Last, found bool, err error) {
	c.checkProbe(from, tag)
	c.begin()
	defer c.leave()
	err = c.poll(true, func() bool {
		found = c.probe(from, tag, &last)
		return found
	})
	return last, found && err == nil, err
}

func (c *Comm) checkProbe(from, tag int) {
	if from != AnySource {
		c.checkPE(from)
	}
	checkTag(tag, AnyTag)
}
