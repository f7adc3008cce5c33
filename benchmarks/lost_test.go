package benchmarks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/sdp"
)

// BenchmarkLost is BenchmarkHops over two hops while some of the client's frames are lost.
// lost-% is how many are.
func BenchmarkLost(b *testing.B) {
	for _, percent := range []int{0, 1} {
		b.Run(fmt.Sprintf("lost=%d%%", percent), func(b *testing.B) {
			l := &losses{percent: percent}
			n := startNodesWith(b, "line", 3, 1, false, sdp.Devices{Wrap: l.wrap})
			dial := func() (net.Conn, error) { return dialNode(n.fabric, 3) }
			verifyChain(b, dial)
			for _, t := range tests {
				b.Run("test="+t.name, func(b *testing.B) {
					l.begin()
					along(b, t, dial)
					b.ReportMetric(l.part(), "lost-%")
				})
			}
		})
	}
}

// losses are the frames that a device loses.
type losses struct {
	percent int // immutable

	mu           sync.Mutex
	rnd          *rand.Rand // nil: none is lost; guarded by mu
	lost, frames int        // guarded by mu
}

func (l *losses) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rnd, l.lost, l.frames = rand.New(rand.NewPCG(1, 2)), 0, 0
}

// part returns how many of a hundred frames were lost since begin.
func (l *losses) part() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return 100 * float64(l.lost) / float64(l.frames)
}

// loses reports whether the next frame is lost.
func (l *losses) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rnd == nil {
		return false
	}
	l.frames++
	if l.rnd.IntN(100) >= l.percent {
		return false
	}
	l.lost++
	return true
}

func (l *losses) wrap(a, b ntb.Device) (ntb.Device, ntb.Device) { return &lossy{a, l}, b }

// lossy is a device whose frames may be lost: they are addressed to a process that does not exist.
type lossy struct {
	ntb.Device
	losses *losses
}

func (d *lossy) Outbound() ntb.Window {
	w := d.Device.Outbound()
	return ntb.SinkWindow(ntb.Basic(&lossySink{w, d.losses}), w.Len())
}

type lossySink struct {
	win    ntb.Window
	losses *losses
}

// Where the headers of frames are in the window, behind their first word, by default.
const (
	firstSlot   = 4096
	slotSize    = 64 + 67584
	slots       = 32
	destination = 4 // its offset in what is stored
)

// Store implements ntb.BasicSink.
func (s *lossySink) Store(off int, p []byte) {
	at := off - firstSlot - 8
	if len(p) == 56 && at >= 0 && at < slots*slotSize && at%slotSize == 0 &&
		binary.LittleEndian.Uint32(p[destination:]) != 0 && s.losses.loses() {
		p = bytes.Clone(p)
		binary.LittleEndian.PutUint16(p[destination:], 65535)
	}
	s.win.Write(off, p)
}

// Publish implements ntb.BasicSink.
func (s *lossySink) Publish(off int, v uint64, width int) {
	if width == 4 {
		s.win.Publish32(off, uint32(v))
		return
	}
	s.win.Publish64(off, v)
}
