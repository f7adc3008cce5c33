package mplite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/shmem"
)

// Comm is one PE's part in the exchange of messages between all PEs of a World. One
// goroutine at a time may use it and its Requests. A call while another one is under
// way panics.
type Comm struct {
	// Immutable.
	w    *shmem.World
	ctx  *shmem.Ctx
	me   int
	opts Options
	// In tests, step is called where another PE may come in between, and instead of
	// waiting.
	step func()

	words   shmem.Sym[uint64] // immutable; see wordHeaders
	senders shmem.Sym[uint64] // send queues, by sender
	replies shmem.Sym[uint64] // receive queues, by receiver
	pool    shmem.Sym[byte]   // send buffers
	landing shmem.Sym[byte]   // two pieces from each PE

	busy atomic.Bool // a call is under way; the call owns all fields below

	links    []link     // by PE
	heard    []uint64   // the words as handled last
	pending  []*Request // receives without a message, in the order of their calls
	unsent   int        // sends that are not out of their buffer yet
	buffers  buffers    // free memory of pool
	first    int        // the PE that is served first
	postable int        // number of pending receives that may be posted and are not
	late     bool       // some of them may be posted now
	spare    []*Request // Requests for reuse by Send and Recv
	scratch  []uint64   // one entry on its way
	stats    Stats
	err      error // the first error that ends the Comm; every later call returns it
}

// Options are the sizes of a Comm, the same on all PEs. A field of 0 has the default
// that its comment names.
type Options struct {
	// Slots is how many headers of messages a PE may have on their way to another. The
	// default is 64.
	Slots int
	// Buffer is the memory of each PE, in bytes, for messages that are sent before
	// they can be received. The default is 4 MiB.
	Buffer int
	// Piece is a size in bytes. A message that found no room in Buffer, and is not
	// received into symmetric memory, goes in pieces of this size. The default is 64
	// KiB.
	Piece int

	trust bool // in tests: use posted receives without the rule of the gap
}

// Limits of Options.
const (
	maxSlots      = 1 << 16
	maxBuffer     = 1 << 40
	defaultSlots  = 64
	defaultBuffer = 4 << 20
	defaultPiece  = 64 << 10
	// maxUnexpected is how many messages without a receive are taken from one PE's
	// queue, unless a receive waits for a message behind them.
	maxUnexpected = 1024
)

func (o Options) withDefaults() (Options, error) {
	for _, v := range []struct {
		name          string
		at            *int
		normal, limit int
	}{
		{"slots", &o.Slots, defaultSlots, maxSlots},
		{"bytes of send buffers", &o.Buffer, defaultBuffer, maxBuffer},
		{"bytes of a piece", &o.Piece, defaultPiece, maxBuffer},
	} {
		if *v.at == 0 {
			*v.at = v.normal
		}
		if *v.at < 1 || *v.at > v.limit {
			return o, fmt.Errorf("mplite: %d %s: want 1 to %d", *v.at, v.name, v.limit)
		}
	}
	o.Piece = (o.Piece + bufferAlign - 1) &^ (bufferAlign - 1)
	o.Buffer = (o.Buffer + bufferAlign - 1) &^ (bufferAlign - 1)
	return o, nil
}

// Errors.
var (
	// ErrClosed reports that the Comm is closed.
	ErrClosed = errors.New("mplite: closed")
	// ErrTooLong reports that a message was longer than the buffer of its receive,
	// and is lost. Last has its size.
	ErrTooLong = errors.New("mplite: message is longer than the buffer")
)

// Stats counts what a Comm has done.
type Stats struct {
	Sent     uint64 // messages that are out of their buffer, of which:
	Direct   uint64 // were put into a receive posted before
	Small    uint64 // went in their header, without a posted receive
	Buffered uint64 // were copied to a send buffer
	Granted  uint64 // found no send buffer, and waited for a receive
	Ignored  uint64 // posted receives that fitted but could not be trusted

	Received   uint64 // messages, of which:
	Gap        uint64 // met a posted receive on their way
	Unexpected uint64 // came before their receive
}

// Open allocates queues and buffers in the symmetric heap. It is collective over all
// PEs of w, with the same options. It fails as shmem.Alloc does.
func Open(ctx context.Context, w *shmem.World, o Options) (*Comm, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := w.NumPEs()
	c := &Comm{w: w, me: w.PE(), opts: o, heard: make([]uint64, n*wordsPerPE), scratch: make([]uint64, entryWords)}
	if c.words, err = shmem.AllocZeroed[uint64](ctx, w, n*wordsPerPE); err != nil {
		return nil, err
	}
	if c.senders, err = shmem.Alloc[uint64](ctx, w, n*o.Slots*entryWords); err != nil {
		return nil, err
	}
	// Half of each receive queue is kept for replies that cannot wait, see doc.go.
	if c.replies, err = shmem.Alloc[uint64](ctx, w, n*2*o.Slots*entryWords); err != nil {
		return nil, err
	}
	if c.pool, err = shmem.Alloc[byte](ctx, w, o.Buffer); err != nil {
		return nil, err
	}
	if c.landing, err = shmem.Alloc[byte](ctx, w, n*2*o.Piece); err != nil {
		return nil, err
	}
	c.ctx = shmem.NewCtx(w)
	c.buffers = newBuffers(o.Buffer)
	for pe := range n {
		c.links = append(c.links, newLink(c, pe))
	}
	return c, w.Team().Sync(ctx)
}

// Close waits until all sends of this PE are out of their buffers, and frees the
// memory. It is collective. Receives that have no message are dropped.
func (c *Comm) Close(ctx context.Context) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	err := c.until(ctx, false, func() bool { return c.unsent == 0 })
	if err != nil {
		return err
	}
	err = c.ctx.Close()
	if err == nil {
		err = shmem.Free(ctx, c.words)
	}
	for _, s := range []shmem.Sym[uint64]{c.senders, c.replies} {
		if err == nil {
			err = shmem.Free(ctx, s)
		}
	}
	for _, s := range []shmem.Sym[byte]{c.pool, c.landing} {
		if err == nil {
			err = shmem.Free(ctx, s)
		}
	}
	c.err = ErrClosed
	return err
}

// Stats returns the counters.
func (c *Comm) Stats() Stats {
	c.begin()
	defer c.leave()
	return c.stats
}

// PE returns this PE's number in the World.
func (c *Comm) PE() int { return c.me }

// NumPEs returns the number of PEs of the World.
func (c *Comm) NumPEs() int { return len(c.links) }

// begin begins a call. It panics if another one is under way.
func (c *Comm) begin() {
	if !c.busy.CompareAndSwap(false, true) {
		panic("mplite: a Comm is used by two goroutines at a time")
	}
}

// enter begins a call, and fails if the Comm has ended.
func (c *Comm) enter() error {
	c.begin()
	if c.err != nil {
		c.leave()
		return c.err
	}
	return nil
}

func (c *Comm) leave() { c.busy.Store(false) }

// fail ends the Comm. The first error stays.
func (c *Comm) fail(err error) {
	if c.err == nil && err != nil {
		c.err = err
	}
}

// bad ends the Comm because of an entry that no PE of this package writes.
func (c *Comm) bad(l *link, e entry) {
	c.fail(fmt.Errorf("mplite: PE %d sent what no PE sends: %+v", l.pe, e))
}

// unknown handles an entry about a receive that is not posted, or no longer. Unless a
// test leaves out the rule of the gap, the entry is bad.
func (c *Comm) unknown(l *link, e entry) {
	if !c.opts.trust {
		c.bad(l, e)
	}
}

// checkPE panics unless pe is a PE of the World.
func (c *Comm) checkPE(pe int) {
	if uint(pe) >= uint(len(c.links)) {
		panic(fmt.Sprintf("mplite: PE %d of %d", pe, len(c.links)))
	}
}
