package tunnel

import (
	"encoding/binary"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
)

func putWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// unlockAndSend unlocks mu. If there is something to send, and a route, the lane takes it, in its
// turn, by Send. No frame of a tunnel is sent in another way. A tunnel that is closed leaves the
// lane, which may have no room for long and would keep its memory. The caller holds no lock of a Lane.
func (t *Tunnel) unlockAndSend() {
	l, closed := t.nextHop.lane, t.arq.State() == arq.Closed
	_, sends := t.arq.Next(time.Time{}) // a delayed acknowledgement is the timer's
	sends = sends || t.arq.Reopened()
	t.mu.Unlock()
	switch {
	case l == nil:
	case sends:
		l.Want(t)
	case closed:
		l.Forget(t)
	}
}

// Send implements Source.
func (t *Tunnel) Send(l Lane) (n int, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nextHop.lane != l {
		return 0, false
	}
	now := time.Now()
	if t.arq.Reopened() {
		t.arq.EndFrame(now) // what was complete before must not wait for what was not
	}
	out, ok := t.arq.Next(now)
	if !ok {
		return 0, false
	}
	t.fill(&t.header, &out)
	l.Put(&t.header, out.Body)
	t.arq.Sent(&out, now)
	n = t.header.Size()
	t.push(now)
	_, more = t.arq.Next(now)
	return n, more
}

// Step takes a step of arq, and sends what follows. f is called with the lock of the tunnel held.
func (t *Tunnel) Step(f func(e *arq.End, now time.Time)) {
	t.mu.Lock()
	defer t.unlockAndSend()
	now := time.Now()
	f(&t.arq, now)
	t.push(now)
}

// push follows each step of arq. What was kept aside moves into frames, as far as there is
// room. What is in frames is sent by unlockAndSend. The caller holds mu.
func (t *Tunnel) push(now time.Time) {
	t.changed()
	t.refill(now)
	t.setTimer(now)
}

// fill makes the header of a frame.
func (t *Tunnel) fill(f *frame.Header, out *arq.Frame) {
	c := t.config
	*f = frame.Header{
		Kind: frame.Kind(out.Kind), Src: c.ID, Dst: t.Remote, Hops: c.Hops,
		To: t.far, From: t.Index, Epoch: t.Epoch,
		Seq: out.Seq, Ack: out.Ack, Length: uint32(len(out.Body)),
	}
	switch {
	case out.Asks:
		f.Ask = 1
	case f.Kind == frame.Open || f.Kind == frame.Accept:
		f.Arg, f.Ask = uint32(c.Window>>10), uint32(c.Retention>>10)
	}
}
