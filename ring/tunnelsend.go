package ring

import (
	"encoding/binary"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
)

func putWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// unlockAndSend unlocks mu. If there is something to send, and a route, the lane takes it, in its
// turn, by send. No frame of a tunnel is sent in another way. A tunnel that is closed leaves the lane, which may have no room for long and would keep
// its memory. The caller holds no lock of an outLane.
func (t *tunnel) unlockAndSend() {
	o := t.lane()
	sends, closed := false, t.arq.State() == arq.Closed
	if o != nil {
		_, sends = t.arq.Next(time.Time{}) // a delayed acknowledgement is the timer's
		sends = sends || t.arq.Reopened()
	}
	t.mu.Unlock()
	switch {
	case o == nil:
	case sends:
		o.want(t)
	case closed:
		o.forget(waiter{source: t})
	}
}

// laneIndex returns which lane of each link the tunnel's frames take. It is that of both ends, so
// that a goroutine that waits at one polls the lane by which the other answers.
func (t *tunnel) laneIndex() int { return int(t.epoch % uint32(t.router.opts.Lanes)) }

// lane returns the lane that the tunnel's frames take, or nil if there is no route. The caller
// holds mu.
func (t *tunnel) lane() *outLane {
	if t.nextHop.link == nil {
		return nil
	}
	return t.nextHop.link.out[t.laneIndex()]
}

// send implements source.
func (t *tunnel) send(o *outLane) (n int, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lane() != o {
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
	f := t.frame(&out)
	o.put(&f, out.Body)
	t.arq.Sent(&out, now)
	t.push(now)
	_, more = t.arq.Next(now)
	return f.Size(), more
}

// step takes a step of arq, and sends what follows.
func (t *tunnel) step(f func(now time.Time)) {
	t.mu.Lock()
	defer t.unlockAndSend()
	now := time.Now()
	f(now)
	t.push(now)
}

// push follows each step of arq. What was kept aside moves into frames, as far as there is
// room. What is in frames is sent by unlockAndSend. The caller holds mu.
func (t *tunnel) push(now time.Time) {
	t.changed()
	t.refill(now)
	t.setTimer(now)
}

// frame returns the header of a frame.
func (t *tunnel) frame(out *arq.Frame) frame.Header {
	r := t.router
	f := frame.Header{
		Kind: frame.Kind(out.Kind), Src: r.node.id, Dst: t.remote, Hops: r.opts.mostHops(),
		To: t.far.index, From: t.index, Epoch: t.epoch,
		Seq: out.Seq, Ack: out.Ack, Length: uint32(len(out.Body)),
	}
	switch {
	case out.Asks:
		f.Ask = 1
	case f.Kind == frame.Open || f.Kind == frame.Accept:
		f.Arg, f.Ask = uint32(r.opts.Window>>10), uint32(r.opts.Retention>>10)
	}
	return f
}
