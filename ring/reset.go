package ring

// reset informs the source of a frame that its tunnel does not exist here. It has no
// answer: a source that does not get it sends again, and gets another one.
func (r *router) reset(f *frame) {
	if f.kind == frameReset || f.kind == frameAck {
		return
	}
	link, _, _ := r.route(f.src.Host(), f.epoch)
	if link == nil {
		return
	}
	link.resets.add(frame{
		kind: frameReset, src: r.node.id, dst: f.src, hops: r.opts.mostHops(),
		to: f.from, from: f.to, epoch: f.epoch,
	})
}

// maxResets is how many resets wait for a link at most. More tunnels of a process that was
// started again are rare. The frames that asked for dropped resets come again.
const maxResets = 256

func resetFrame(f frame) (frame, []byte, bool) { return f, nil, true }

func newResets(l *Link) *sendQueue[frame] {
	return &sendQueue[frame]{link: l, most: maxResets, frame: resetFrame}
}
