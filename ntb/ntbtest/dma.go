package ntbtest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/ntb"
)

// forEachDMA calls f for each channel. If there is none, it skips the subtest.
func forEachDMA(e *env, f func(c ntb.DMAChannel)) {
	n := e.a.Caps().DMAChannels
	if n == 0 {
		e.Skip("the device has no DMA channels")
	}
	for i := range n {
		f(e.a.DMA(i))
	}
}

// copies starts copies on one channel and checks the calls of their done functions.
// The device's goroutines make these calls. They may outlive the subtest, so they
// do not fail it.
type copies struct {
	*env
	c       ntb.DMAChannel
	starts  sync.Mutex // held during Start, which may not call done itself
	started int
	done    atomic.Int64
	fault   atomic.Pointer[string] // the first fault
}

// try starts a copy, or returns false if the queue is full.
func (c *copies) try(off int, src []byte) bool {
	n := int64(c.started)
	var calls atomic.Int32
	fault := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		c.fault.CompareAndSwap(nil, &text)
	}
	c.starts.Lock()
	ok := c.c.Start(off, src, func(err error) {
		// If Start itself calls done, this wait fails.
		if !c.poll(c.starts.TryLock) {
			fault("copy %d: done is called, but Start does not return before", n)
			return
		}
		defer c.starts.Unlock()
		if err != nil {
			fault("copy %d failed: %v", n, err)
		}
		if calls.Add(1) != 1 {
			fault("copy %d is done more than once", n)
		}
		if !c.done.CompareAndSwap(n, n+1) {
			fault("copy %d is done when %d are done: not in order", n, c.done.Load())
		}
	})
	c.starts.Unlock()
	if ok {
		c.started++
	}
	return ok
}

func (c *copies) start(off int, src []byte) {
	c.Helper()
	c.must("room in the DMA queue", func() bool { return c.try(off, src) || c.fault.Load() != nil })
	c.check()
}

// wait waits until all copies are done.
func (c *copies) wait() {
	c.Helper()
	c.must("copies done", func() bool { return c.done.Load() == int64(c.started) || c.fault.Load() != nil })
	c.check()
}

func (c *copies) check() {
	c.Helper()
	if f := c.fault.Load(); f != nil {
		c.Fatal(*f)
	}
}

func dmaCopies(e *env) {
	m := newModel(e)
	forEachDMA(e, func(ch ntb.DMAChannel) {
		c := &copies{env: e, c: ch}
		for _, size := range []int{1, 7, 8, 63, 64, 65, 1000, m.room()} {
			for range 4 {
				off := m.rng.IntN(m.room() - size + 1)
				src := m.bytes(size)
				c.start(off, src)
				copy(m.want[off:], src) // in order: a later copy overwrites an earlier one
			}
		}
		c.wait()
		if got := e.b.Inbound(); !bytes.Equal(got, m.want) {
			e.Error("window differs from what was copied")
		}
	})
}

// dmaSource changes the source as soon as its copy is done.
func dmaSource(e *env) {
	forEachDMA(e, func(ch ntb.DMAChannel) {
		c := &copies{env: e, c: ch}
		src := make([]byte, 1000)
		for round := range 20 {
			for i := range src {
				src[i] = byte(round + i)
			}
			c.start(100, src)
			c.wait()
			want := bytes.Clone(src)
			clear(src)
			if got := e.b.Inbound()[100:1100]; !bytes.Equal(got, want) {
				e.Fatalf("round %d: other bytes arrived than were there until done", round)
			}
		}
	})
}

// dmaFull starts copies until the queue is full. None of the calls blocks.
func dmaFull(e *env) {
	forEachDMA(e, func(ch ntb.DMAChannel) {
		c := &copies{env: e, c: ch}
		src := make([]byte, len(e.b.Inbound())/2)
		e.mustReturn("Start", func() {
			for range 2000 {
				c.try(0, src)
			}
		})
		c.wait()
		c.start(0, src)
		c.wait()
	})
}

// reclaim gives back a range that begins and ends inside of pages.
func reclaim(e *env) {
	if in := e.b.Inbound(); !e.b.Caps().Reclaims {
		before := bytes.Clone(in)
		if err := e.b.Reclaim(0, len(in)); !errors.Is(err, ntb.ErrNotSupported) || !bytes.Equal(in, before) {
			e.Errorf("Reclaim by a device that cannot: %v, want %v and an unchanged window", err, ntb.ErrNotSupported)
		}
		return
	}
	// A device around it that adds nothing has the same ability.
	r := ntb.Device(struct{ ntb.Device }{e.b})
	m := newModel(e)
	all := m.room()
	m.write(&m.out, 0, 0, all)
	m.check()
	off, n := 100, all-200
	if err := r.Reclaim(off, n); err != nil {
		e.Fatalf("Reclaim: %v", err)
	}
	first, end := wholePages(e.b.Inbound(), off, n)
	if first >= end {
		e.Fatalf("window of %d bytes: no whole page in [%d, %d), so nothing is tested", all, off, off+n)
	}
	clear(m.want[first:end])
	m.check()
	m.write(&m.out, 0, 0, all)
	m.check()
	if err := r.Reclaim(5, 100); err != nil {
		e.Errorf("Reclaim of less than a page: %v", err)
	}
	m.check()

	in := e.b.Inbound()
	for _, bad := range [][2]int{{-1, 10}, {0, len(in) + 1}, {len(in), 1}, {0, -1}} {
		func() {
			defer func() {
				if recover() == nil {
					e.Errorf("Reclaim(%d, %d) of a window of %d: no panic", bad[0], bad[1], len(in))
				}
			}()
			_ = r.Reclaim(bad[0], bad[1])
		}()
	}
	if err := e.b.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	if err := r.Reclaim(0, 1); !errors.Is(err, ntb.ErrClosed) {
		e.Errorf("Reclaim after Close: %v, want %v", err, ntb.ErrClosed)
	}
}
