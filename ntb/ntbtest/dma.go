package ntbtest

import (
	"bytes"
	"errors"
	"os"

	"github.com/ntbnet/ntbnet/ntb"
)

// forEachDMA calls f for each channel, or skips the subtest.
func forEachDMA(e *env, f func(c ntb.DMAChannel)) {
	n := e.a.Caps().DMAChannels
	if n == 0 {
		e.Skip("the device has no DMA channels")
	}
	for i := range n {
		f(e.a.DMA(i))
	}
}

// done waits until copy number n of c has arrived.
func (e *env) done(c ntb.DMAChannel, n uint64) {
	e.Helper()
	e.must("DMA copy done", func() bool {
		got, err := c.Done()
		if err != nil {
			e.Fatalf("Done: %v", err)
		}
		if got > n {
			e.Fatalf("copy %d is done, but %d is the last that was started", got, n)
		}
		return got == n
	})
}

func dmaCopies(e *env) {
	forEachDMA(e, func(c ntb.DMAChannel) {
		m := newModel(e)
		copy(m.want, e.b.Inbound()) // what an earlier channel copied
		var last uint64
		for _, size := range []int{1, 7, 8, 63, 64, 65, 1000, m.room()} {
			for range 4 {
				off := m.rng.IntN(m.room() - size + 1)
				src := m.bytes(size)
				var n uint64
				e.must("room in the DMA queue", func() bool {
					var err error
					if n, err = c.Start(off, src); err != nil {
						e.Fatalf("Start: %v", err)
					}
					return n != 0
				})
				if last++; n != last {
					e.Fatalf("copy has number %d, want %d", n, last)
				}
				copy(m.want[off:], src) // in order: a later copy overwrites
			}
		}
		e.done(c, last)
		if got := e.b.Inbound(); !bytes.Equal(got, m.want) {
			e.Error("window differs from what was copied")
		}
	})
}

// dmaStop stops copies to one place and then copies to another: nothing may
// change in the first.
func dmaStop(e *env) {
	forEachDMA(e, func(c ntb.DMAChannel) {
		const size = 1024
		in := e.b.Inbound()
		src := bytes.Repeat([]byte{1}, size)
		for range 20 {
			if _, err := c.Start(0, src); err != nil {
				e.Fatalf("Start: %v", err)
			}
		}
		if err := c.Stop(); err != nil {
			e.Fatalf("Stop: %v", err)
		}
		before := bytes.Clone(in[:size])
		copy(src, bytes.Repeat([]byte{2}, size)) // it is the caller's again

		again := bytes.Repeat([]byte{3}, size)
		var n uint64
		e.must("room in the DMA queue", func() bool {
			var err error
			if n, err = c.Start(size, again); err != nil {
				e.Fatalf("Start after Stop: %v", err)
			}
			return n != 0
		})
		e.done(c, n)
		if !bytes.Equal(in[size:2*size], again) {
			e.Error("copy after Stop has not arrived")
		}
		if !bytes.Equal(in[:size], before) {
			e.Error("a copy that was stopped has arrived later")
		}
	})
}

// reclaim is of one page in the middle of a range that is not on pages.
func reclaim(e *env) {
	r, ok := e.b.(ntb.Reclaimer)
	if !ok {
		e.Skip("the device cannot give memory back")
	}
	m := newModel(e)
	all := m.room()
	m.write(&m.out, 0, 0, all)
	m.check()
	off, n := 100, all-200
	if err := r.Reclaim(off, n); errors.Is(err, ntb.ErrNotSupported) {
		e.Skip("the device around which this one is cannot give memory back")
	} else if err != nil {
		e.Fatalf("Reclaim: %v", err)
	}
	in := e.b.Inbound()
	if page := os.Getpagesize(); n > 3*page && !bytes.Contains(in[off:off+n], make([]byte, page)) {
		e.Errorf("no page of %d bytes that were given back is zero", n)
	}
	for i := range all {
		if in[i] != 0 && in[i] != m.want[i] || (i < off || i >= off+n) && in[i] != m.want[i] {
			e.Fatalf("byte %d is %#x after Reclaim of [%d, %d), it was %#x", i, in[i], off, off+n, m.want[i])
		}
	}
	m.write(&m.out, 0, 0, all)
	m.check()

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
