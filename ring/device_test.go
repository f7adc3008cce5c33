package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// settle waits until the other end has what was stored.
func (t *tunnelEnd) settle() { t.Arrived(time.Minute) }

// ended returns why a tunnel has ended.
func (t *tunnelEnd) ended(tb *testing.T) (err error) {
	tb.Helper()
	ends(tb, "the tunnel", func() {
		for err == nil {
			err = t.Wait()
		}
	})
	return err
}

// The last page of the window of a device over a tunnel: scratchpads of 4 bytes, a line for each
// doorbell bit, and the lines of Order.
const (
	overPage  = 4096
	overSpads = 16
	overBells = 8
	overBell  = 1024
	overAsk   = 2048
	overReply = 2112
)

// overTunnel is a device whose stores are those of a tunnel. So the suite of bridges tries these.
type overTunnel struct {
	*tunnelEnd
	in    []byte // the whole window, also after Close
	size  int    // of the window, the page left out
	page  ntb.Window
	bells [overBells]chan struct{}
	reply chan struct{}
	order chan uint32 // the number of the last Order; capacity 1
	rings chan uint32 // the number of the last doorbell; capacity 1
}

// asDevices returns devices over both ends of a tunnel.
func asDevices(x, y *tunnelEnd) (a, b ntb.Device) { return newOverTunnel(x), newOverTunnel(y) }

func newOverTunnel(t *tunnelEnd) *overTunnel {
	size := len(t.Inbound()) - overPage
	out := t.Outbound()
	d := &overTunnel{
		tunnelEnd: t, in: t.Inbound(), size: size, page: out.Slice(size, overPage), reply: make(chan struct{}, 1),
		order: make(chan uint32, 1), rings: make(chan uint32, 1),
	}
	d.order <- 0
	d.rings <- 0
	for bit := range d.bells {
		d.bells[bit] = make(chan struct{}, 1)
		d.on(overBell+64*bit, d.bells[bit])
	}
	asked := make(chan struct{}, 1)
	d.on(overAsk, asked)
	d.on(overReply, d.reply)
	go func() {
		for {
			select {
			case <-asked:
				d.page.Publish32(overReply, ntb.Load32(d.in, size+overAsk))
			case <-t.Down():
				return
			}
		}
	}()
	return d
}

// on has a token put into c when a word of the page is published.
func (d *overTunnel) on(off int, c chan struct{}) {
	line := (d.size+off)/64 - link.RegionLine(d.size+overPage)
	d.Watch(&link.Watch{Lines: [2]int{line, line}, Wake: func() {
		ntb.Fence()
		select {
		case c <- struct{}{}:
		default:
		}
	}})
}

func (d *overTunnel) Caps() ntb.Caps {
	c := d.tunnelEnd.Caps()
	c.Doorbells, c.Scratchpads = overBells, overSpads
	return c
}

func (d *overTunnel) Inbound() []byte {
	return d.in[:d.size:d.size]
}

func (d *overTunnel) Outbound() ntb.Window {
	out := d.tunnelEnd.Outbound()
	return out.Part(0, d.size)
}

func (d *overTunnel) Spad(i int) uint32 {
	if d.LinkUp() {
		return ntb.Load32(d.in, d.size+4*i)
	}
	return link.Gone
}

func (d *overTunnel) SetPeerSpad(i int, v uint32) {
	if i < 0 || i >= overSpads {
		panic("no such scratchpad")
	}
	d.page.Publish32(4*i, v)
}

func (d *overTunnel) RingDoorbell(bit int) {
	n := <-d.rings + 1
	d.page.Publish32(overBell+64*bit, n)
	d.rings <- n
}

func (d *overTunnel) WaitDoorbell(bit int) error {
	if err := d.lost(); err != nil {
		return err
	}
	select {
	case <-d.bells[bit]:
	case <-d.Down():
	}
	return d.lost()
}

// lost returns why the link is down, or nil.
func (d *overTunnel) lost() error {
	select {
	case <-d.Down():
		return d.Wait() // at once
	default:
		return nil
	}
}

// Order implements ntb.Device, by a question that the other end answers.
func (d *overTunnel) Order() {
	n := <-d.order + 1
	defer func() { d.order <- n }()
	d.page.Publish32(overAsk, n)
	for d.LinkUp() && ntb.Load32(d.in, d.size+overReply) != n {
		select {
		case <-d.reply:
		case <-d.Down():
		}
	}
}

func (d *overTunnel) DMA(int) ntb.DMAChannel { panic("no DMA channels") }
func (d *overTunnel) Reclaim(off, n int) error {
	if off < 0 || n < 0 || off > d.size-n {
		panic("outside of the window")
	}
	return ntb.ErrNotSupported
}

// What is stored before a doorbell of another line is there when that has rung.
func TestATunnelWakesWhatWaits(t *testing.T) {
	o := small(2)
	o.Topology = Line
	a, b := newFabric(t, o).tunnels(t, 1, 2)
	t.Cleanup(func() { a.Close(); b.Close() })
	a.Store(128, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	a.Wake(7, [2]int{64, 0})
	require.NoError(t, b.Wait())
	require.EqualValues(t, 7, ntb.Load32(b.Inbound(), 0))
	require.EqualValues(t, 7, ntb.Load32(b.Inbound(), 64))
	require.EqualValues(t, 0x0807060504030201, ntb.Load64(b.Inbound(), 128))
}
