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
	sources [][]byte   // allocated; freed by wait
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

// source returns a copy of p that the channel can read.
func (c *copies) source(p []byte) []byte {
	c.Helper()
	mem, err := c.c.Alloc(len(p))
	if err != nil || len(mem) != len(p) {
		c.Fatalf("Alloc(%d): %d bytes, %v", len(p), len(mem), err)
	}
	c.sources = append(c.sources, mem)
	copy(mem, p)
	return mem
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
	for _, mem := range c.sources {
		c.c.Free(mem)
	}
	c.sources = nil
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
				src := c.source(m.bytes(size))
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
		for round := range 20 {
			src := c.source(make([]byte, 1000))
			for i := range src {
				src[i] = byte(round + i)
			}
			want := bytes.Clone(src)
			c.start(100, src)
			c.must("copy done", func() bool { return c.done.Load() == int64(c.started) || c.fault.Load() != nil })
			clear(src)
			c.wait()
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
		src := c.source(make([]byte, len(e.b.Inbound())/2))
		e.mustReturn("Start", func() {
			for range 2000 {
				c.try(0, src)
			}
		})
		c.must("copies done", func() bool { return c.done.Load() == int64(c.started) || c.fault.Load() != nil })
		c.start(0, src)
		c.wait()
	})
}

// dmaMemory allocates and frees what a channel can read. It can read parts of that, and
// nothing else.
func dmaMemory(e *env) {
	var left []func()
	forEachDMA(e, func(ch ntb.DMAChannel) {
		c := &copies{env: e, c: ch}
		m := newModel(e)
		for _, size := range []int{1, 63, 4096, m.room()} {
			mem, err := ch.Alloc(size)
			if err != nil {
				e.Fatalf("Alloc(%d): %v", size, err)
			}
			if n := misalignment(mem); n != 0 || len(mem) != size {
				e.Errorf("Alloc(%d): %d bytes, %d behind a 64-byte boundary", size, len(mem), n)
			}
			if !bytes.Equal(mem, make([]byte, size)) {
				e.Errorf("Alloc(%d): not zero", size)
			}
			copy(mem, m.bytes(size))
			off, n := size/3, size/2
			copy(m.want[off:], mem[off:off+n])
			c.start(off, mem[off:off+n])
			c.wait()
			ch.Free(mem)
			e.mustPanic("Free of memory that is free", func() { ch.Free(mem) })
			e.mustPanic("a copy from memory that is free", func() { ch.Start(0, mem, func(error) {}) })
		}
		if got := e.b.Inbound(); !bytes.Equal(got[:m.room()], m.want[:m.room()]) {
			e.Error("window differs from what was copied")
		}
		mem, err := ch.Alloc(64)
		if err != nil {
			e.Fatalf("Alloc: %v", err)
		}
		e.mustPanic("Free of a part", func() { ch.Free(mem[:32]) })
		e.mustPanic("a copy from memory of the program", func() { ch.Start(0, make([]byte, 64), func(error) {}) })
		left = append(left, func() { ch.Free(mem) })
	})
	e.a.Close()
	for _, free := range left {
		free()
	}
}

// mustPanic fails unless f panics.
func (e *env) mustPanic(what string, f func()) {
	e.Helper()
	defer func() {
		if recover() == nil {
			e.Errorf("%s: no panic", what)
		}
	}()
	f()
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
