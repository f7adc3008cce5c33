package ring

import "github.com/ntbnet/ntbnet/internal/frame"

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
