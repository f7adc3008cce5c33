package ntbtest_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
)

// moreFlaws are the flaws for subtests that flaws does not cover. Not covered are
// sizes of slices, bytes in place and stores that do not fit. ntb.Window handles
// these, so a device cannot do them wrong.
var moreFlaws = []flaw{
	{"window not zero", "inbound window is zero", func(d *device) { d.Device.Inbound()[100] = 1 }},
	{"window not aligned", "inbound window is zero", func(d *device) {
		d.inbound = func() []byte { return d.Device.Inbound()[8:] }
		d.outbound = func(w ntb.Window) ntb.Window { return w.Slice(8, w.Len()-8) }
	}},
	{"link down at first", "link is up at first", func(d *device) { d.linkUp = func() bool { return false } }},
	{"large stores cut off", "large stores", stores(func(w *ntb.Window, off int, p []byte) {
		w.Write(off, p[:min(len(p), 1024)])
	})},
	{"order blocks", "order on both sides", func(d *device) { d.order = func() { untilDown(d) } }},

	{"one scratchpad lost", "scratchpads are zero", func(d *device) {
		d.setSpad = func(i int, v uint32) {
			if i != 5 {
				d.Device.SetPeerSpad(i, v)
			}
		}
	}},
	{"scratchpads overtake stores", "scratchpads are ordered", lastStoreLate},

	{"doorbells before the wait lost", "doorbell rung before", waits(func(took time.Duration) bool { return took < time.Millisecond })},
	{"sleepers not woken", "doorbell wakes a waiter", waits(func(took time.Duration) bool { return took > time.Millisecond/2 })},
	{"ringing blocks", "doorbell can be rung many times", func(d *device) {
		var n atomic.Int32
		d.ring = func(bit int) {
			if d.Device.RingDoorbell(bit); n.Add(1) > 100 {
				untilDown(d)
			}
		}
	}},
	{"doorbell left out after another", "doorbell beside the last one", func(d *device) {
		var last time.Time
		d.ring = func(bit int) {
			if time.Since(last) > 50*time.Microsecond {
				last = time.Now()
				d.Device.RingDoorbell(bit)
			}
		}
	}},

	{"close overtakes stores", "close comes after", lastStoreLate},
	{"doorbell hides that the link is down", "close comes after", func(d *device) {
		var hidden atomic.Bool
		d.wait = func(bit int) error {
			err := d.Device.WaitDoorbell(bit)
			if err != nil && !hidden.Swap(true) {
				return nil
			}
			return err
		}
	}},
	{"two closes at once", "close on both sides", func(d *device) {
		var n atomic.Int32
		d.close = func() error {
			if n.Add(1) > 1 {
				return errors.New("closed already")
			}
			return d.Device.Close()
		}
	}},
	{"close waits for waiters", "close beside calls", func(d *device) {
		var waiters atomic.Int32
		d.wait = func(bit int) error {
			waiters.Add(1)
			defer waiters.Add(-1)
			return d.Device.WaitDoorbell(bit)
		}
		d.close = func() error {
			for waiters.Load() > 0 {
				time.Sleep(time.Millisecond)
			}
			return d.Device.Close()
		}
	}},
	{"close needs the link", "close after the link went down", func(d *device) {
		d.close = func() error {
			up := d.Device.LinkUp()
			if err := d.Device.Close(); err != nil || up {
				return err
			}
			return ntb.ErrLinkDown
		}
	}},
	{"disable does nothing", "disable takes the link down", func(d *device) { d.disable = func() {} }},
	{"disable clears the peer's window", "disable takes the link down", func(d *device) {
		d.disable = func() {
			w := d.Device.Outbound()
			w.Write(0, make([]byte, 64))
			d.Device.Disable()
		}
	}},
	{"disable takes the window", "disable takes the link down", func(d *device) {
		d.inbound = func() []byte {
			if !d.Device.LinkUp() {
				return nil
			}
			return d.Device.Inbound()
		}
	}},

	{"memory given back without the ability", "reclaimed pages", func(d *device) {
		d.reclaim = func(off, n int) error { clear(d.Device.Inbound()[off : off+n]); return nil }
	}},
	{"nothing given back", "reclaimed pages", reclaims(func([]byte, int, int) (first, end int) { return 0, 0 })},
	{"parts of pages given back", "reclaimed pages", reclaims(func(_ []byte, off, n int) (first, end int) { return off, off + n })},
	{"first page only given back", "reclaimed pages", reclaims(func(mem []byte, off, n int) (first, end int) {
		first, end = ntbtest.WholePages(mem, off, n)
		return first, min(end, first+4096)
	})},
}

// untilDown blocks as long as the link is up, so that the suite can clean up.
func untilDown(d *device) {
	for d.Device.LinkUp() {
		time.Sleep(time.Millisecond)
	}
}

// lastStoreLate holds each store back until the next one. Nothing else waits for
// it.
func lastStoreLate(d *device) {
	var mu sync.Mutex
	late := func() {}
	put := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		late()
		late = f
	}
	d.outbound = func(w ntb.Window) ntb.Window {
		return ntb.SinkWindow(ntb.Basic(&sink{w: w,
			store: func(w *ntb.Window, off int, p []byte) {
				p = append([]byte(nil), p...)
				put(func() { w.Write(off, p) })
			},
			publish: func(w *ntb.Window, off int, v uint64, width int) {
				put(func() { publish(w, off, v, width) })
			}}), w.Len())
	}
}

// waits loses the doorbells for which lost returns true, given how long the wait
// took.
func waits(lost func(took time.Duration) bool) func(d *device) {
	return func(d *device) {
		d.wait = func(bit int) error {
			for {
				start := time.Now()
				if err := d.Device.WaitDoorbell(bit); err != nil || !lost(time.Since(start)) {
					return err
				}
			}
		}
	}
}

// reclaims reclaims the part of the device's memory that pages returns.
func reclaims(pages func(mem []byte, off, n int) (first, end int)) func(d *device) {
	return func(d *device) {
		var closed atomic.Bool
		d.gains(func(c *ntb.Caps) { c.Reclaims = true })
		d.close = func() error {
			closed.Store(true)
			return d.Device.Close()
		}
		d.reclaim = func(off, n int) error {
			mem := d.Device.Inbound()
			if off < 0 || n < 0 || off > len(mem)-n {
				panic(fmt.Sprintf("reclaim %d bytes at %d of a window of %d", n, off, len(mem)))
			}
			if closed.Load() {
				return ntb.ErrClosed
			}
			if first, end := pages(mem, off, n); first < end {
				clear(mem[first:end])
			}
			return nil
		}
	}
}
