package tunnel

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// side is an end of a tunnel with a lane of its own. With what it adds it is link.Frames.
type side struct {
	*Tunnel
	lane    Lane
	removed atomic.Bool
}

func (s *side) Route() (Lane, uint64) { return s.lane, 1 }
func (s *side) Forget()               {}
func (s *side) Remove()               { s.removed.Store(true) }
func (s *side) Reset(*frame.Header)   {}
func (s *side) Caps() ntb.Caps        { return ntb.Caps{Backend: "test", Untrusted: true} }
func (s *side) Poll() bool            { return false }
func (s *side) Rest()                 {}

// wire is a lane that a goroutine takes frames of. It has four slots.
type wire struct {
	far   *side
	taken sync.Mutex // held while the other end takes a frame

	mu      sync.Mutex
	waits   []Source
	down    bool
	slots   chan slot
	deliver sync.WaitGroup
}

type slot struct {
	f    frame.Header
	body []byte
}

func newWire(t *testing.T) *wire {
	w := &wire{slots: make(chan slot, 4)}
	t.Cleanup(func() {
		w.mu.Lock()
		w.down = true
		close(w.slots)
		w.mu.Unlock()
		w.deliver.Wait()
	})
	return w
}

func (w *wire) Want(s Source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.waits {
		if o == s {
			return
		}
	}
	w.waits = append(w.waits, s)
	w.run()
}

func (w *wire) Forget(s Source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range w.waits {
		if o == s {
			w.waits = append(w.waits[:i:i], w.waits[i+1:]...)
			return
		}
	}
}

// run pulls frames while there is room. The caller holds mu.
func (w *wire) run() {
	for len(w.waits) > 0 && len(w.slots) < cap(w.slots) && !w.down {
		s := w.waits[0]
		w.waits = w.waits[1:]
		if _, more := s.Send(w); more {
			w.waits = append(w.waits, s)
		}
	}
}

func (w *wire) Put(f *frame.Header, body []byte) {
	s := slot{*f, ntb.AlignedBytes(len(body))}
	copy(s.body, body)
	w.slots <- s
}

// work takes frames until the wire is down.
func (w *wire) work() {
	for s := range w.slots {
		w.taken.Lock()
		if s.f.Kind == frame.Open {
			w.far.Step((*arq.End).OpenedAgain)
		} else {
			w.far.Take(&s.f, s.body)
		}
		w.taken.Unlock()
		w.mu.Lock()
		w.run()
		w.mu.Unlock()
	}
}

// void is a lane whose frames vanish. sent is called for each, with the lock of the tunnel held.
type void struct{ sent func() }

func (v *void) Want(s Source) {
	for more := true; more; {
		_, more = s.Send(v)
	}
}

func (v *void) Forget(Source) {}

func (v *void) Put(*frame.Header, []byte) { v.sent() }

func config(host int) *Config {
	return &Config{
		ID: link.MakeID(host, 1), FrameBytes: 256, Window: 1 << 20, Retention: 1 << 20, Hops: 4,
		Drops: &frame.Drops{}, AfterFunc: time.AfterFunc,
	}
}

// newSides returns the two ends of a tunnel of hosts 1 and 2, and the wire from the first one.
func newSides(t *testing.T, change func(*Config)) (a, b *side, out *wire) {
	t.Helper()
	ca, cb := config(1), config(2)
	change(ca)
	change(cb)
	out, back := newWire(t), newWire(t)
	a, b = &side{lane: out}, &side{lane: back}
	a.Tunnel = Ask(ca, a, cb.ID, link.NewEpoch())
	var open frame.Header
	a.fill(&open, &arq.Frame{Kind: arq.Open})
	b.Tunnel = Answer(cb, b, &open)
	t.Cleanup(func() {
		for _, s := range []*side{a, b} {
			s.Drop()
			s.Close()
		}
	})
	out.far, back.far = b, a
	for _, w := range []*wire{out, back} {
		w.deliver.Go(w.work)
	}
	b.Reroute()
	a.Reroute()
	select {
	case <-a.Opened():
	case <-time.After(60 * time.Second):
		require.Fail(t, "it is not opened")
	}
	return a, b, out
}

// stuckTunnels returns the two ends of a tunnel. The second one takes no frames from the first
// until goOn is called.
func stuckTunnels(t *testing.T, change func(*Config)) (a, b *side, goOn func()) {
	t.Helper()
	a, b, out := newSides(t, change)
	out.taken.Lock()
	goOn = sync.OnceFunc(out.taken.Unlock)
	t.Cleanup(goOn) // before the wire ends
	return a, b, goOn
}

// newSilent returns a tunnel to a process that does not exist. Frames go there, and only the
// test sends any back. sent is called for each.
func newSilent(change func(*Config), sent func()) *side {
	c := config(1)
	change(c)
	a := &side{lane: &void{sent}}
	a.Tunnel = Answer(c, a, &frame.Header{
		Src: link.MakeID(2, 9), Epoch: link.NewEpoch(), Arg: uint32(c.Window >> 10), Ask: uint32(c.Retention >> 10),
	})
	a.Reroute()
	return a
}
