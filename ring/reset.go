package ring

import "github.com/ntbnet/ntbnet/internal/lock"

// reset tells the source of a frame that its tunnel does not exist here. It has no
// answer: a source that does not get it sends again, and gets another one.
func (r *router) reset(f *frame) {
	if f.kind == frameReset || f.kind == frameAck {
		return
	}
	link, _, _ := r.route(f.src.Host())
	if link == nil {
		return
	}
	link.resets.add(frame{
		kind: frameReset, src: r.node.id, dst: f.src, hops: r.opts.mostHops(),
		to: f.from, from: f.to, epoch: f.epoch,
	})
}

// maxResets is how many resets wait for a link at most. More tunnels of a node that was
// started again are rare. The frames that asked for dropped resets come again.
const maxResets = 256

// resetSender sends resets over a link. They wait for their turn like all frames of
// this node's own, since the other ends of tunnels that no longer exist send again and
// again until they get a reset. It implements ownSource.
type resetSender struct {
	link *Link

	mu      lock.Mutex[lock.News]
	pending []frame // in the order of asking, each once; guarded by mu
}

// add sends a reset, unless the same one waits already. If too many wait, the oldest is
// dropped.
func (s *resetSender) add(f frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.pending {
		if p := &s.pending[i]; p.dst == f.dst && p.to == f.to && p.epoch == f.epoch {
			return
		}
	}
	if len(s.pending) == maxResets {
		s.pending = append(s.pending[:0], s.pending[1:]...)
	}
	s.pending = append(s.pending, f)
	s.push(false)
}

func (s *resetSender) serve(*outLane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.push(true)
}

// push sends while there is room. The caller holds mu.
func (s *resetSender) push(served bool) {
	for len(s.pending) > 0 {
		switch s.link.out[0].own(&s.pending[0], nil, s, served) {
		case putDone:
			s.pending = append(s.pending[:0], s.pending[1:]...)
		case putWait:
			return
		case putDown:
			s.pending = nil
		}
		served = false
	}
}
