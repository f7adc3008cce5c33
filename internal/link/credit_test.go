package link

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// onCredit is a device that calls f after its user has published set-up credit, once.
type onCredit struct {
	ntb.Device
	f func()
}

func (d *onCredit) Outbound() ntb.Window {
	w := d.Device.Outbound()
	return ntb.SinkWindow(ntb.Basic(creditSink{d, w}), w.Len())
}

type creditSink struct {
	d   *onCredit
	win ntb.Window
}

func (s creditSink) Store(off int, p []byte) { s.win.Write(off, p) }

func (s creditSink) Publish(off int, v uint64, width int) {
	if width == 4 {
		s.win.Publish32(off, uint32(v))
	} else {
		s.win.Publish64(off, v)
	}
	if f := s.d.f; off == offSetupCredit && f != nil {
		s.d.f = nil
		f()
	}
}

// Messages that fill the queue, and the word that more wait, come while the receiver has taken those before
// them and has not yet looked at that word.
func TestASenderThatFillsTheQueueDuringALookGetsCredit(t *testing.T) {
	leak.Check(t)
	a, b := ntbmem.Pair(1 << 20)
	counts, to := &onCredit{Device: b}, newEcho()
	pa, pb := join(t, a, counts, newEcho(), to)
	send := func(n int) {
		for range n {
			require.NoError(t, pa.Send(ServiceSDP, []byte("message")))
		}
	}
	pb.looks.mu.Lock() // nothing is taken before all is there
	counts.f = func() { send(2 * setupSlots) }
	send(setupSlots)
	pb.looks.mu.Unlock()
	pb.Poll()
	to.wait(t, func() bool { return len(to.messages) == 3*setupSlots })
}
