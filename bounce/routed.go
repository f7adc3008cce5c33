package bounce

import "github.com/ntbnet/ntbnet/ring"

// Where frames lead to the peer, they take no data at times: as much is under way as may
// be, or other connections' data waits too. Write asks for room first, and waits for its
// turn here, as it waits for credit, so that its deadline, Close and the peer's end count.
// What is not data never waits.

// put writes the first bytes of p as one record and returns how many. If that is 0, there
// is no room in the queue, or, if waits, the frames take none and the turn is waited for.
// The caller holds wmu.
func (c *Pair) put(p []byte) (n int, waits bool) {
	if c.turn == nil {
		return c.tx.put(p), false
	}
	off, n := c.tx.reserve(len(p))
	if n == 0 {
		return 0, false
	}
	if n = c.peer.TryWrite(&c.tx.win, off, p[:n], c.turn); n == 0 {
		return 0, true
	}
	c.tx.commit(n)
	return n, false
}

// waitTurn waits until frames take data, or there is a reason to stop. The caller holds
// wmu, and looks again.
func (c *Pair) waitTurn() {
	w := &c.ww
	w.parked.Store(true)
	defer w.parked.Store(false)
	for !c.peer.Room(c.turn) && w.stop.Load() == 0 && !c.ended(ring.Space) {
		c.peer.Poll()
		w.counts.parks++
		c.saveStats(ring.Space)
		<-w.wake
	}
}

// leaveTurn gives up the place in line that an earlier call may have left. The caller
// holds wmu.
func (c *Pair) leaveTurn() {
	if c.turn != nil {
		c.peer.Leave(c.turn)
	}
}
