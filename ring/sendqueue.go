package ring

import (
	"slices"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/tunnel"
)

// sendQueue is what waits to be sent over a link besides the frames of tunnels: a frame of
// this process' own for each T that was added. These wait for their turn as all frames of this
// process' own do. It is a source.
type sendQueue[T comparable] struct {
	// Immutable.
	link  *Link
	most  int                                            // how many wait at the most; 0: any number
	frame func(T) (f frame.Header, body []byte, ok bool) // what is sent for a T, if anything is

	mu      lock.Mutex[lock.SendQueue]
	pending []T  // in the order of asking, each once; guarded by mu
	sending bool // the lane knows that there are some, or is about to; guarded by mu
}

// add sends what there is to send for each, unless it waits already. If too many wait, the
// oldest is dropped.
//
// The caller works for any other link. So a goroutine of its own informs the lane: where
// stores to the neighbour block, that keeps nobody else.
func (s *sendQueue[T]) add(each ...T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range each {
		if slices.Contains(s.pending, v) {
			continue
		}
		if s.most > 0 && len(s.pending) == s.most {
			s.pending = slices.Delete(s.pending, 0, 1)
		}
		s.pending = append(s.pending, v)
	}
	if len(s.pending) > 0 && !s.sending {
		s.sending = true
		go s.link.out[0].Want(s)
	}
}

// take takes the next of those that wait, if there is one. It is taken before its frame is
// made: what has changed when it is added meanwhile is sent after this.
func (s *sendQueue[T]) take() (v T, ok, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok = len(s.pending) > 0; ok {
		v = s.pending[0]
		s.pending = slices.Delete(s.pending, 0, 1)
	}
	s.sending = len(s.pending) > 0
	return v, ok, s.sending
}

// Send implements tunnel.Source.
func (s *sendQueue[T]) Send(l tunnel.Lane) (n int, more bool) {
	for {
		v, ok, more := s.take()
		if !ok {
			return 0, false
		}
		f, body, ok := s.frame(v)
		if ok {
			l.Put(&f, body)
			return f.Size(), more
		}
	}
}

// reset informs the source of a frame that its tunnel does not exist here. It has no
// answer: a source that does not get it sends again, and gets another one.
func (r *router) reset(f *frame.Header) {
	if f.Kind == frame.Reset || f.Kind == frame.Ack {
		return
	}
	link, _, _ := r.route(f.Src.Host(), f.Epoch)
	if link == nil {
		return
	}
	link.resets.add(frame.Header{
		Kind: frame.Reset, Src: r.node.id, Dst: f.Src, Hops: r.opts.mostHops(),
		To: f.From, From: f.To, Epoch: f.Epoch,
	})
}

// maxResets is how many resets wait for a link at most. More tunnels of a process that was
// started again are rare. The frames that asked for dropped resets come again.
const maxResets = 256

func resetFrame(f frame.Header) (frame.Header, []byte, bool) { return f, nil, true }

func newResets(l *Link) *sendQueue[frame.Header] {
	return &sendQueue[frame.Header]{link: l, most: maxResets, frame: resetFrame}
}
