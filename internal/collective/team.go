package collective

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Team is a set of PEs that make collective calls together, numbered from 0.
type Team struct {
	// Immutable.
	space *onesided.Space
	ctx   onesided.Ctx // for steps, messages and data
	peers []*onesided.Peer
	me    int        // this PE's number
	stage uintptr    // offset of the stage
	pairs []*partner // by PE
	topology

	*calls
	tree *tree // of the last large broadcast, or nil; guarded by mu
}

// calls are the collective calls of a team, or of all active sets. They are one at a time.
type calls struct {
	// mu is held while a collective is under way. It guards the following.
	mu    lock.Mutex[lock.Team]
	line  [slotNumberAt / 8]uint64 // one message on its way
	buf   []uint64                 // scratch
	err   error                    // of a call that failed
	ended bool                     // set by End
}

// New makes a team of peers, of which this PE is number me. The work area of AreaBytes is
// at an offset.
func New(space *onesided.Space, peers []*onesided.Peer, me int, area uintptr, where Layout) *Team {
	t := newTeam(space, peers, me, where, new(calls))
	t.stage = area + linesBytes(len(space.Peers()))
	all := partners(area, len(peers))
	for pe := range all {
		t.pairs = append(t.pairs, &all[pe])
	}
	return t
}

func newTeam(space *onesided.Space, peers []*onesided.Peer, me int, where Layout, c *calls) *Team {
	t := &Team{space: space, peers: peers, me: me, calls: c}
	t.ctx.Init(space, peers)
	t.topology = where.topology(me, len(peers))
	return t
}

// SetLayout sets where the team's PEs are, before its first collective but Sync and Agree.
func (t *Team) SetLayout(where Layout) { t.topology = where.topology(t.me, len(t.peers)) }

// Clear resets this PE's work area, which has the counts of an earlier team.
func (t *Team) Clear() {
	for _, q := range t.pairs {
		for off := q.from; off < q.from+pairBytes; off += 8 {
			symheap.Store8(t.space.Heap().Base, off, 0)
		}
	}
}

// Begin begins a collective call. It fails if an earlier one did, since the PEs may be at
// different places then.
func (t *Team) Begin() error {
	t.space.Check()
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		panic("shmem: use of a destroyed Team")
	}
	if err := t.err; err != nil {
		t.mu.Unlock()
		return err
	}
	return nil
}

// Leave ends what Begin began.
func (t *Team) Leave(err error) error {
	if err == nil {
		err = t.ctx.Err()
	}
	if err != nil {
		t.err = err
	}
	t.mu.Unlock()
	return err
}

// End makes all later calls panic. It reports whether this was the first End.
func (t *Team) End() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.ended
	t.ended = true
	return first
}

// Quiet completes what the team's calls have put. The caller has called Begin, as the
// callers of all methods below have.
func (t *Team) Quiet() error { return t.ctx.Quiet() }

// flat is the largest team in which each PE tells each other directly, rather than
// through others. That takes one round, and where PEs share processors each has to
// run once only.
const flat = 8

// Sync is a barrier. PEs whose steps are requests, and which share a host, step to the first one of
// it, which steps back when all are there. A request costs its host more than the wait for one more
// round.
func (t *Team) Sync(ctx context.Context) error {
	if t.head != t.me {
		t.step(t.head)
		return t.await(ctx, t.head)
	}
	for _, pe := range t.crew {
		if err := t.await(ctx, pe); err != nil {
			return err
		}
	}
	if err := t.meet(ctx); err != nil {
		return err
	}
	for _, pe := range t.crew {
		t.step(pe)
	}
	return nil
}

// meet is the barrier of the PEs that synchronize with each other. If they are few, each steps to each
// other. Otherwise each steps in round r to the one 2^r further, and waits for the one 2^r before.
func (t *Team) meet(ctx context.Context) error {
	n := len(t.others) + 1
	if n <= flat {
		for _, pe := range t.others {
			t.step(pe)
		}
		for _, pe := range t.others {
			if err := t.await(ctx, pe); err != nil {
				return err
			}
		}
		return nil
	}
	for d := 1; d < n; d *= 2 {
		t.step(t.others[d-1])
		if err := t.await(ctx, t.others[n-d-1]); err != nil {
			return err
		}
	}
	return nil
}

// local returns n bytes of this PE's own heap.
func (t *Team) local(off uintptr, n int) []byte {
	return symheap.Bytes(t.space.Heap().Base, off, uintptr(n))
}

// put copies b to an offset at PE pe of the team.
func (t *Team) put(off uintptr, b []byte, pe int) { t.ctx.PutBytes(t.peers[pe], off, b) }

// get copies len(dst) bytes from an offset at PE pe of the team.
func (t *Team) get(dst []byte, off uintptr, pe int) { t.ctx.GetBytes(dst, t.peers[pe], off) }
