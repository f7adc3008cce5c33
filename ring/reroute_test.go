package ring

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// loses has a tunnel send a frame that is lost.
func (t *tunnelEnd) loses(now time.Time) {
	t.Step(func(e *arq.End, _ time.Time) {
		e.Ask(now)
		loseAll(e, now)
	})
}

// loseAll loses what is to be sent.
func loseAll(e *arq.End, now time.Time) {
	for out, ok := e.Next(now); ok; out, ok = e.Next(now) {
		e.Sent(&out, now)
	}
}

// losesForLong has a tunnel send a frame that is lost, again and again, for d. It returns when
// that will be sent next. All was acknowledged before.
func (t *tunnelEnd) losesForLong(d time.Duration) (next time.Time) {
	t.Step(func(e *arq.End, now time.Time) {
		e.Ask(now)
		loseAll(e, now)
		for end := now.Add(d); now.Before(end); now = e.Deadline() {
			e.Expire(now)
			loseAll(e, now)
		}
		next = e.Deadline()
	})
	return next
}

// A link is cut and made again so fast that its node reports it only once. Nothing
// else shows the source that frames are lost.
func TestTheLinkStateOfALinkMadeAgainHasAllSentAgain(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(5))
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	r := f.nodes[0].router
	// All link states have come when all nodes know of both links of all nodes.
	for end := time.Now().Add(60 * time.Second); !knowsAll(r, 5); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	from := r.sides[Right].Load()
	advertise := func(host int, d Direction) {
		r.mu.Lock()
		was := r.linkStates[host]
		fr := frame.Header{
			Kind: frame.LinkState, Src: was.id, Epoch: uint32(was.number + 1), Seq: uint32((was.number + 1) >> 32),
			States: uint32(stateUp) | uint32(stateUp)<<8, Arg: was.links[Left], Ask: was.links[Right],
		}
		r.mu.Unlock()
		switch d {
		case Left:
			fr.Arg++
		case Right:
			fr.Ask++
		}
		r.receiveLinkState(from, &fr, nil)
	}
	a.Reroute() // what links that came up have asked for changes nothing after it
	was := a.Stats().Restarts
	advertise(2, Direct) // a link state without anything new
	advertise(2, Left)   // the other end of our own link, which we know ourselves
	advertise(3, Left)   // the far end of the link from 2 to 3
	advertise(3, Right)  // not on the route
	advertise(4, Left)
	a.Reroute()
	require.Equal(t, was, a.Stats().Restarts)
	advertise(2, Right)
	// Host 2 may have reported already that this is wrong.
	require.Eventually(t, func() bool { return a.Stats().Restarts > was }, 30*time.Second, time.Millisecond)
	require.True(t, a.LinkUp())
}

// Frames were lost for long, and no link state showed it. A route that is then cut and mended counts
// anew: it does not wait for the end of a long time that began before.
func TestPatienceIsShortAgainOnANewWay(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	a.settle()
	ta := a
	long := ta.losesForLong(time.Hour)
	f.cut(0)
	a.settle() // frames use the new route
	ta.Step(func(e *arq.End, _ time.Time) { require.True(t, e.Deadline().Before(long)) })
}

// A writer that goes on does not put off that a lost frame is sent again.
func TestALostFrameIsSentAgainWhileMoreAreSent(t *testing.T) {
	leak.Check(t)
	o := small(4)
	o.Retention = 1 << 20
	f := newFabric(t, o)
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	a.settle()
	ta := a
	ta.loses(time.Now())
	out := a.Outbound()
	for i := uint64(1); ntb.Load64(b.Inbound(), 0) == 0; i++ {
		require.Less(t, i, uint64(3000), "it is not sent again")
		out.Publish64(0, i)
		time.Sleep(10 * time.Millisecond)
	}
}

// A node asks again, by every route, until it is answered. Copies that come by two routes at
// the same moment make one tunnel.
func TestCopiesOfOpenMakeOneTunnel(t *testing.T) {
	leak.Check(t)
	n := joined(t, link.MakeID(2, 1), small(4))
	defer n.Close()
	r := n.router
	r.mu.Lock()
	r.linkStates[4] = &linkState{id: link.MakeID(4, 1), number: 1}
	r.mu.Unlock()
	for epoch := uint32(1); epoch <= 300; epoch++ {
		f := frame.Header{Kind: frame.Open, Src: link.MakeID(4, 1), Dst: n.id, From: 7, Epoch: epoch, Arg: 1 << 10, Ask: 16}
		var wg sync.WaitGroup
		var admitted atomic.Int32
		for range 4 {
			wg.Go(func() {
				if r.admit(linkKey{}, &f) != nil {
					admitted.Add(1)
					n.wg.Done() // there is no peer
				}
			})
		}
		wg.Wait()
		made := r.tunnels.all()
		require.Len(t, made, 1)
		require.EqualValues(t, 1, admitted.Load())
		made[0].Drop()
		made[0].Close()
		require.Empty(t, r.tunnels.all())
	}
}
