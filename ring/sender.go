package ring

import (
	"slices"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// sender sends frames of this node's own over a link, each for a T that add names. They
// wait for their turn as all frames of this node's own do. It implements ownSource.
//
// What is to be sent is noted under one lock, by who works for any other link, and sent
// under another, on a goroutine of its own: where stores to the neighbour block, that
// keeps nobody else.
type sender[T comparable] struct {
	// Immutable.
	link  *Link
	most  int                                     // how many wait at the most; 0: any number
	frame func(T) (f frame, body []byte, ok bool) // what is sent for a T, if anything is

	turn lock.Mutex[lock.Sender] // held by who sends, also while the device keeps it

	mu      lock.Mutex[lock.Told]
	pending []T  // in the order of asking, each once; guarded by mu
	sending bool // someone is about to send what is pending; guarded by mu
}

// add sends what there is to send for each, unless it waits already. If too many wait, the
// oldest is dropped.
func (s *sender[T]) add(each ...T) {
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
		go s.push(false)
	}
}

func (s *sender[T]) serve(*outLane) { s.push(true) }

// take takes the next of those that wait, if there is one. It is taken before its frame is
// made: what has changed when it is added meanwhile is sent after this.
func (s *sender[T]) take() (v T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = len(s.pending) > 0
	if !s.sending {
		return v, false
	}
	v = s.pending[0]
	s.pending = slices.Delete(s.pending, 0, 1)
	return v, true
}

// putBack ends sending for now: v waits for room. If as many as may be wait by now, it is
// the oldest, and dropped.
func (s *sender[T]) putBack(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = false
	if !slices.Contains(s.pending, v) && (s.most == 0 || len(s.pending) < s.most) {
		s.pending = slices.Insert(s.pending, 0, v)
	}
}

// forget ends sending for good.
func (s *sender[T]) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = false
	s.pending = nil
}

// push sends while there is room.
func (s *sender[T]) push(served bool) {
	s.turn.Lock()
	defer s.turn.Unlock()
	for v, ok := s.take(); ok; v, ok = s.take() {
		f, body, ok := s.frame(v)
		if !ok {
			continue
		}
		switch s.link.out[0].own(&f, body, s, served) {
		case putWait:
			s.putBack(v)
			return
		case putDown:
			s.forget()
			return
		}
		served = false
	}
}
