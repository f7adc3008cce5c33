package ntbtest_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

// broken names the device on which to run the suite. That run is a process of its
// own, because it must fail.
var broken = flag.String("broken", "", "run the suite on this broken device")

// device is a device some of whose methods a test replaces.
type device struct {
	ntb.Device
	caps     func(ntb.Caps) ntb.Caps
	inbound  func() []byte
	outbound func(ntb.Window) ntb.Window
	spad     func(i int) uint32
	setSpad  func(i int, v uint32)
	ring     func(bit int)
	wait     func(bit int) error
	linkUp   func() bool
	order    func()
	dma      func(i int) ntb.DMAChannel
	disable  func()
	close    func() error
	reclaim  func(off, n int) error
}

// gains adds to the device's properties.
func (d *device) gains(add func(*ntb.Caps)) {
	before := d.caps
	d.caps = func(c ntb.Caps) ntb.Caps {
		if before != nil {
			c = before(c)
		}
		add(&c)
		return c
	}
}

func (d *device) Caps() ntb.Caps {
	if d.caps == nil {
		return d.Device.Caps()
	}
	return d.caps(d.Device.Caps())
}

func (d *device) Inbound() []byte {
	if d.inbound == nil {
		return d.Device.Inbound()
	}
	return d.inbound()
}

func (d *device) Outbound() ntb.Window {
	if d.outbound == nil {
		return d.Device.Outbound()
	}
	return d.outbound(d.Device.Outbound())
}

func (d *device) Spad(i int) uint32 {
	if d.spad == nil {
		return d.Device.Spad(i)
	}
	return d.spad(i)
}

func (d *device) SetPeerSpad(i int, v uint32) {
	if d.setSpad == nil {
		d.Device.SetPeerSpad(i, v)
		return
	}
	d.setSpad(i, v)
}

func (d *device) RingDoorbell(bit int) {
	if d.ring == nil {
		d.Device.RingDoorbell(bit)
		return
	}
	d.ring(bit)
}

func (d *device) WaitDoorbell(bit int) error {
	if d.wait == nil {
		return d.Device.WaitDoorbell(bit)
	}
	return d.wait(bit)
}

func (d *device) LinkUp() bool {
	if d.linkUp == nil {
		return d.Device.LinkUp()
	}
	return d.linkUp()
}

func (d *device) Order() {
	if d.order == nil {
		d.Device.Order()
		return
	}
	d.order()
}

func (d *device) DMA(i int) ntb.DMAChannel {
	if d.dma == nil {
		return d.Device.DMA(i)
	}
	return d.dma(i)
}

func (d *device) Disable() {
	if d.disable == nil {
		d.Device.Disable()
		return
	}
	d.disable()
}

func (d *device) Reclaim(off, n int) error {
	if d.reclaim == nil {
		return d.Device.Reclaim(off, n)
	}
	return d.reclaim(off, n)
}

func (d *device) Close() error {
	if d.close == nil {
		return d.Device.Close()
	}
	return d.close()
}

// sink passes stores on, changed by its functions.
type sink struct {
	w       ntb.Window
	store   func(w *ntb.Window, off int, p []byte)
	publish func(w *ntb.Window, off int, v uint64, width int)
}

func (s *sink) Store(off int, p []byte) {
	if s.store == nil {
		s.w.Write(off, p)
		return
	}
	s.store(&s.w, off, p)
}

func (s *sink) Publish(off int, v uint64, width int) {
	if s.publish == nil {
		publish(&s.w, off, v, width)
		return
	}
	s.publish(&s.w, off, v, width)
}

func publish(w *ntb.Window, off int, v uint64, width int) {
	if width == 4 {
		w.Publish32(off, uint32(v))
	} else {
		w.Publish64(off, v)
	}
}

func stores(f func(w *ntb.Window, off int, p []byte)) func(d *device) {
	return func(d *device) {
		d.outbound = func(w ntb.Window) ntb.Window { return ntb.SinkWindow(ntb.Basic(&sink{w: w, store: f}), w.Len()) }
	}
}

func publishes(f func(w *ntb.Window, off int, v uint64, width int)) func(d *device) {
	return func(d *device) {
		d.outbound = func(w ntb.Window) ntb.Window { return ntb.SinkWindow(ntb.Basic(&sink{w: w, publish: f}), w.Len()) }
	}
}

type flaw struct {
	name, subtest string
	spoil         func(d *device)
}

// flaws describes the broken devices, and the subtest that must find each.
var flaws = []flaw{
	{"caps change", "capabilities", func(d *device) {
		var calls atomic.Int32
		d.caps = func(c ntb.Caps) ntb.Caps {
			c.Scratchpads = 16 - int(calls.Add(1)/3%2)
			return c
		}
	}},
	{"too few scratchpads", "capabilities", func(d *device) {
		d.caps = func(c ntb.Caps) ntb.Caps { c.Scratchpads = 7; return c }
	}},
	{"window too short", "inbound window is zero", func(d *device) {
		d.outbound = func(w ntb.Window) ntb.Window { return w.Slice(0, w.Len()-64) }
	}},
	{"byte too many stored", "stores of all sizes", stores(func(w *ntb.Window, off int, p []byte) {
		if w.Write(off, p); off+len(p) < w.Len() {
			w.Write(off+len(p), []byte{0xee})
		}
	})},
	{"caller's bytes kept", "stores of all sizes", func(d *device) {
		var mu sync.Mutex
		var later []func()
		d.outbound = func(w ntb.Window) ntb.Window {
			return ntb.SinkWindow(ntb.Basic(&sink{w: w,
				store: func(w *ntb.Window, off int, p []byte) {
					mu.Lock()
					defer mu.Unlock()
					later = append(later, func() { w.Write(off, p) })
				},
				publish: func(w *ntb.Window, off int, v uint64, width int) {
					mu.Lock()
					defer mu.Unlock()
					for _, f := range later {
						f()
					}
					later = nil
					publish(w, off, v, width)
				}}), w.Len())
		}
	}},
	{"neighbour of a word stored", "published words", publishes(func(w *ntb.Window, off int, v uint64, _ int) {
		if publish(w, off, v, 8); off+8 < w.Len() {
			w.Write(off+8, []byte{1})
		}
	})},
	{"words overtake stores", "stores arrive in the order", func(d *device) {
		var last atomic.Pointer[func()]
		d.outbound = func(w ntb.Window) ntb.Window {
			return ntb.SinkWindow(ntb.Basic(&sink{w: w, store: func(w *ntb.Window, off int, p []byte) {
				p = bytes.Clone(p)
				late := func() { w.Write(off, p) }
				if before := last.Swap(&late); before != nil {
					(*before)()
				}
			}}), w.Len())
		}
	}},
	{"order does nothing", "order makes earlier stores visible", func(d *device) { d.order = func() {} }},
	{"order does nothing, and who sleeps looks", "store, arm, order and look", func(d *device) { d.order = func() {} }},
	{"scratchpads are one", "scratchpads are zero", func(d *device) {
		d.spad = func(int) uint32 { return d.Device.Spad(0) }
	}},
	{"scratchpads stay when the link is down", "close is seen by the peer", func(d *device) {
		d.spad = func(i int) uint32 {
			if v := d.Device.Spad(i); d.LinkUp() {
				return v
			}
			return 0
		}
	}},
	{"doorbells lost", "doorbells alone carry", func(d *device) {
		var n atomic.Int64
		d.ring = func(bit int) {
			if n.Add(1)%10 != 0 {
				d.Device.RingDoorbell(bit)
			}
		}
	}},
	{"doorbells are one", "first doorbell wakes no other", func(d *device) {
		d.ring = func(bit int) {
			for i := range d.Caps().Doorbells {
				d.Device.RingDoorbell(i)
			}
		}
	}},
	{"waits return at once", "doorbell that nobody rings", func(d *device) {
		d.wait = func(bit int) error {
			if !d.Device.LinkUp() {
				return d.Device.WaitDoorbell(bit)
			}
			time.Sleep(time.Millisecond)
			return nil
		}
	}},
	{"wrong error after close", "close wakes own waiters", func(d *device) {
		d.wait = func(bit int) error {
			if err := d.Device.WaitDoorbell(bit); err != nil {
				return ntb.ErrLinkDown
			}
			return nil
		}
	}},
	{"link always up", "close is seen by the peer", func(d *device) { d.linkUp = func() bool { return true } }},
	{"second close fails", "close wakes own waiters", func(d *device) {
		var n atomic.Int32
		d.close = func() error {
			if n.Add(1) > 1 {
				return errors.New("twice")
			}
			return d.Device.Close()
		}
	}},
	{"close leaves a goroutine", "inbound window", func(d *device) {
		d.close = func() error {
			go func() { select {} }()
			return d.Device.Close()
		}
	}},
	{"DMA copies out of order", "DMA copies arrive", dma(func(c *engine) { c.backwards = true })},
	{"DMA copies done before they are", "DMA source", dma(func(c *engine) { c.early = true })},
	{"DMA start calls done", "DMA copies arrive", dma(func(c *engine) { c.atOnce = true })},
	{"DMA reads what is not registered", "DMA memory", dma(func(c *engine) { c.readsAll = true })},
	{"DMA queue blocks", "DMA queue", dma(func(c *engine) { c.blocks = true })},
}

// engine is a DMA channel. Each batch of copies has a goroutine, so that the engine
// need not be closed.
type engine struct {
	out                      ntb.Window
	backwards, early, blocks bool
	atOnce                   bool
	readsAll                 bool

	mu      sync.Mutex
	queue   []func()
	running bool
	memory  [][]byte
}

func (c *engine) Alloc(n int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mem := ntb.AlignedBytes(n)
	c.memory = append(c.memory, mem)
	return mem, nil
}

func (c *engine) Free(mem []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.memory, func(m []byte) bool { return &m[0] == &mem[0] && len(m) == len(mem) })
	c.memory = slices.Delete(c.memory, i, i+1) // panics if there is none
}

// reads panics unless src lies within memory of the engine.
func (c *engine) reads(src []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := func(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
	if !c.readsAll && !slices.ContainsFunc(c.memory, func(m []byte) bool {
		return at(m) <= at(src) && at(src)+uintptr(len(src)) <= at(m)+uintptr(len(m))
	}) {
		panic("not registered")
	}
}

func dma(spoil func(c *engine)) func(d *device) {
	return func(d *device) {
		c := &engine{out: d.Device.Outbound()}
		spoil(c)
		d.gains(func(c *ntb.Caps) { c.DMAChannels = 1 })
		d.dma = func(int) ntb.DMAChannel { return c }
	}
}

func (c *engine) Start(off int, src []byte, done func(error)) bool {
	c.reads(src)
	if c.atOnce {
		c.out.Write(off, src)
		done(nil)
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 8 {
		if c.blocks {
			select {}
		}
		return false
	}
	c.queue = append(c.queue, func() {
		if c.early {
			done(nil)
			time.Sleep(time.Millisecond)
			c.out.Write(off, src)
			return
		}
		c.out.Write(off, src)
		done(nil)
	})
	if !c.running {
		c.running = true
		go c.run()
	}
	return true
}

func (c *engine) run() {
	for {
		c.mu.Lock()
		queue := c.queue
		c.queue = nil
		c.running = len(queue) > 0
		c.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		if c.backwards {
			slices.Reverse(queue)
		}
		for _, f := range queue {
			f()
		}
	}
}

// TestSuitePasses runs the suite on a device that has what ntbmem lacks: DMA, lossy
// doorbells, and memory that can be reclaimed.
func TestSuitePasses(t *testing.T) {
	ntbtest.Run(t, func(*testing.T) (a, b ntb.Device) {
		x, y := ntbmem.Pair(16 << 10)
		a, b = ntbfault.Pair(x, y, ntbfault.Options{DropDoorbell: 0.3})
		ends := [2]*device{{Device: a}, {Device: b}}
		for _, d := range ends {
			dma(func(*engine) {})(d)
			reclaims(ntbtest.WholePages)(d)
		}
		return ends[0], ends[1]
	})
}

// TestBroken is run in a process of its own by TestSuiteFindsFlaws.
func TestBroken(t *testing.T) {
	if *broken == "" {
		t.Skip("only for TestSuiteFindsFlaws")
	}
	ntbtest.SetLimit(300 * time.Millisecond)
	for _, f := range slices.Concat(flaws, moreFlaws) {
		if f.name != *broken {
			continue
		}
		ntbtest.Run(t, func(*testing.T) (a, b ntb.Device) {
			x, y := ntbmem.Pair(16 << 10)
			if strings.HasPrefix(f.name, "order ") {
				x, y = ntbfault.Pair(x, y, ntbfault.Options{StoreDelayMax: 100 * time.Microsecond})
			}
			ends := [2]*device{{Device: x}, {Device: y}}
			f.spoil(ends[0])
			f.spoil(ends[1])
			return ends[0], ends[1]
		})
		return
	}
	t.Fatalf("no such device: %q", *broken)
}

func TestSuiteFindsFlaws(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a process for each flaw")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Concat(flaws, moreFlaws) {
		t.Run(f.name, func(t *testing.T) {
			subtest := strings.ReplaceAll(f.subtest, " ", "_")
			var out []byte
			var err error
			var exit *exec.ExitError
			// Some flaws show only if goroutines meet. They get several tries.
			for range 100 {
				cmd := exec.Command(self, "-test.run=^TestBroken$/^"+subtest, "-test.timeout=60s", "-test.short", "-broken="+f.name)
				if out, err = cmd.CombinedOutput(); errors.As(err, &exit) {
					break
				}
			}
			if exit == nil {
				t.Fatalf("the suite passes a device with: %s (%v)\n%s", f.name, err, out)
			}
			if bytes.Contains(out, []byte("panic:")) {
				t.Errorf("it did not end by a failed check\n%s", out)
			}
		})
	}
}
