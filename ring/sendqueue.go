package ring

import (
	"slices"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/lock"
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
		go s.link.out[0].want(s)
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

// send implements source.
func (s *sendQueue[T]) send(o *outLane) (n int, more bool) {
	for {
		v, ok, more := s.take()
		if !ok {
			return 0, false
		}
		f, body, ok := s.frame(v)
		if ok {
			o.put(&f, body)
			return f.Size(), more
		}
	}
}
