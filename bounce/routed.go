package bounce

import "github.com/ntbnet/ntbnet/ring"

// Where frames lead to the peer, they sometimes take no data, because as much is under way
// as may be, or data of other connections waits too. Write asks for room first, and waits
// for its turn here, as it waits for credit. So its deadline, Close and the peer's end
// count. Everything that is not data never waits.

// put writes the first bytes of p as one record and returns how many. If it returns 0,
// there is no room in the queue, or, if waits is true, the frames take none and the turn
// is waited for. The caller holds wmu.
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
// wmu, and checks again.
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
