package ring

import "time"

// How long a process may give no credit until the frames for it that others sent are
// dropped, so that others' go on. One that has links to other hosts has more to do.
const (
	stallAfter     = 100 * time.Millisecond // a member
	stallNodeAfter = time.Second
)

// stall is what a lane knows of a neighbour that gives no credit. The lane's mu guards it.
type stall struct {
	stopped  bool // it gave none for long
	watching bool // timer is set
	credit   uint32
	timer    *time.Timer
}

// watchStall sees to it that the frames which others sent do not wait for long. The caller
// holds mu.
func (o *outLane) watchStall() {
	if o.stall.watching || len(o.lanes()) == 0 {
		return
	}
	after := stallNodeAfter
	if o.link.direction == Down {
		after = stallAfter
	}
	o.stall.watching = true
	o.stall.credit = o.credit
	if o.stall.timer == nil {
		o.stall.timer = time.AfterFunc(after, o.stallCheck)
	} else {
		o.stall.timer.Reset(after)
	}
}

// stallCheck drops what waits if no credit has come for as long as that, and has it
// dropped from then on until some comes.
func (o *outLane) stallCheck() {
	for _, l := range o.stalled() {
		l.drain()
		l.pollOnward()
	}
}

// stalled returns the lanes that wait for a neighbour which has stopped.
func (o *outLane) stalled() []*inLane {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stall.watching = false
	o.free()
	lanes := o.lanes()
	if o.down || len(lanes) == 0 {
		return nil
	}
	if o.credit != o.stall.credit {
		o.watchStall()
		return nil
	}
	o.stall.stopped = true
	return lanes
}
