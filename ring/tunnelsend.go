package ring

import (
	"encoding/binary"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
)

func putWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// serve implements ownSource.
func (t *tunnel) serve(*outLane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.push(time.Now(), true)
}

// push follows each step of arq. It sends frames while there is room in the lane. The rest
// follows when the lane calls serve, or when a way is found. What was kept aside moves into
// the room that this makes. The caller holds mu.
func (t *tunnel) push(now time.Time, served bool) {
	t.changed()
	for {
		t.pushFrames(now, served)
		if !t.refill(now) {
			break
		}
		served = false
	}
	t.arm(now)
}

// pushFrames sends what is in frames. The caller holds mu.
func (t *tunnel) pushFrames(now time.Time, served bool) {
	for t.way.link != nil {
		out, ok := t.arq.Next(now)
		if !ok {
			return
		}
		f := t.frame(&out)
		if t.way.link.out[t.seat.lane].own(&f, out.Body, t, served) != putDone {
			return // serve, or reroute, goes on
		}
		t.arq.Sent(&out, now)
		served = false
	}
}

// frame returns the header of a frame.
func (t *tunnel) frame(out *arq.Frame) frame {
	r := t.router
	f := frame{
		kind: frameKind(out.Kind), src: r.node.id, dst: t.remote, hops: r.opts.mostHops(),
		to: t.far.index, from: t.seat.index, epoch: t.epoch,
		seq: out.Seq, ack: out.Ack, length: uint32(len(out.Body)),
		bells: out.Marks.Bells, ask: out.Marks.Ask, answer: out.Marks.Answer,
	}
	if f.kind == frameOpen || f.kind == frameAccept {
		f.arg, f.ask = uint32(r.opts.Window>>10), uint32(r.opts.Retention>>10)
	}
	return f
}
