package ntbdma

import (
	"errors"
	"sync"

	"github.com/ntbnet/ntbnet/ntb"
)

// ErrInjected is the error of a copy that Options.FailEvery made fail.
var ErrInjected = errors.New("ntbdma: injected failure")

// Options configures an engine.
type Options struct {
	// Channels is the number of channels, at least 1.
	Channels int
	// FailEvery makes every copy fail whose number is a multiple of it. Copies are
	// counted per channel from 1. 0 means that none fails. A copy that fails stores
	// half of its bytes.
	FailEvery int
}

// MaxMemory is how much memory can be registered with a channel, in bytes.
const MaxMemory = 1 << 30

// depth is how many copies a channel queues.
const depth = 64

// Device is a device with DMA channels.
type Device struct {
	ntb.Device
	channels []*channel
	once     sync.Once
}

// Wrap puts an engine around dev and takes ownership of dev.
func Wrap(dev ntb.Device, o Options) *Device {
	d := &Device{Device: dev}
	for range o.Channels {
		c := &channel{win: dev.Outbound(), fail: o.FailEvery, queue: make(chan transfer, depth), closing: make(chan struct{}), ended: make(chan struct{})}
		d.channels = append(d.channels, c)
		go c.run()
	}
	return d
}

// Around returns a function that puts an engine around each of two devices that is not
// nil, as sdp.OpenWith wants it.
func Around(o Options) func(a, b ntb.Device) (ntb.Device, ntb.Device) {
	wrap := func(d ntb.Device) ntb.Device {
		if d == nil {
			return nil
		}
		return Wrap(d, o)
	}
	return func(a, b ntb.Device) (ntb.Device, ntb.Device) { return wrap(a), wrap(b) }
}

// Caps returns the inner device's properties, with the number of channels.
func (d *Device) Caps() ntb.Caps {
	caps := d.Device.Caps()
	caps.DMAChannels = len(d.channels)
	return caps
}

// DMA returns channel i.
func (d *Device) DMA(i int) ntb.DMAChannel { return d.channels[i] }

// Close waits for the copies that are queued, and closes the inner device.
func (d *Device) Close() error {
	d.once.Do(func() {
		for _, c := range d.channels {
			close(c.closing)
			<-c.ended
		}
	})
	return d.Device.Close()
}

type transfer struct {
	off  int
	src  []byte
	done func(error)
}

type channel struct {
	registry
	win     ntb.Window
	fail    int
	queue   chan transfer
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when run has ended
}

func (c *channel) Start(off int, src []byte, done func(error)) bool {
	c.check(src)
	select {
	case <-c.closing:
		return false
	default:
	}
	select {
	case c.queue <- transfer{off, src, done}:
		return true
	default:
		return false
	}
}

func (c *channel) run() {
	defer close(c.ended)
	for n := 1; ; n++ {
		t, ok := c.next()
		if !ok {
			return
		}
		c.copy(t, c.fail > 0 && n%c.fail == 0)
	}
}

// next waits for a copy. After Close it still returns those that are queued.
func (c *channel) next() (transfer, bool) {
	select {
	case t := <-c.queue:
		return t, true
	default:
	}
	select {
	case t := <-c.queue:
		return t, true
	case <-c.closing:
	}
	select {
	case t := <-c.queue:
		return t, true
	default:
		return transfer{}, false
	}
}

func (c *channel) copy(t transfer, fail bool) {
	if fail {
		c.win.Write(t.off, t.src[:len(t.src)/2])
		t.done(ErrInjected)
		return
	}
	c.win.Write(t.off, t.src)
	t.done(nil)
}
