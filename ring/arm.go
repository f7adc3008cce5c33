package ring

import (
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// dataArm is the data arm of a lane, at the neighbour. The word has one writer at a
// time: the lane's worker, or the guard. The lane's own lock is not for that: it is held
// while frames are taken.
type dataArm struct {
	mu lock.Mutex[lock.DataArm]
	n  uint32 // published last; guarded by mu
}

// publish increments the arm, so that the neighbour rings for the next frame.
func (a *dataArm) publish(words *ntb.Window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	words.Publish32(laneDataArm, a.n)
}
