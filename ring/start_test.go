package ring

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// knowsAll reports whether a node of a ring knows of both links of all nodes.
func knowsAll(r *router, nodes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for host := 1; host <= nodes; host++ {
		if n := r.linkStates[host]; n == nil || n.links[Left] == 0 || n.links[Right] == 0 {
			return false
		}
	}
	return true
}

// asked returns a tunnel that host 1 has asked host 3 for, and the frame that asks,
// which no node has seen yet.
func asked(f *fabric) (*tunnelEnd, *frame.Header) {
	// A link state that came later would change the route, and so have everything
	// sent again.
	for _, n := range f.nodes {
		for !knowsAll(n.router, len(f.nodes)) {
			time.Sleep(time.Millisecond)
		}
	}
	r := f.nodes[0].router
	x := newAsker(r, link.MakeID(3, 1))
	r.tunnels.add(x)
	return x, x.openFrame()
}

// silenceAlarms has the tunnels that a node makes from then on send nothing again because it takes long.
func (r *router) silenceAlarms() {
	r.tunnelConfig.AfterFunc = func(d time.Duration, _ func()) *time.Timer { return time.AfterFunc(d, func() {}) }
}

// came waits until a tunnel has taken n frames, and requires that the other end has sent
// each once.
func came(t *testing.T, x, y *tunnelEnd, n uint32) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); x.Expects() != n+1; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	require.Zero(t, y.Stats().Resent)
}

// A link state comes while a tunnel is being made, and has a frame sent in it.
func TestAcceptIsTheFirstFrameOfATunnel(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	r := f.nodes[2].router
	x, open := asked(f)
	r.silenceAlarms()
	y := r.admit(linkKey{}, open)
	defer r.node.wg.Done() // there is no peer
	y.Reroute()            // as router.changed does
	y.Probe()
	defer x.Close()
	defer y.Close()
	came(t, x, y, 1)
}

// By the time that the second frame is sent, the route may be another one, and
// faster.
func TestAcceptIsSentAgainByANewWay(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	r := f.nodes[2].router
	x, open := asked(f)
	r.silenceAlarms()
	y := newAnswerer(r, linkKey{}, open)
	y.Step(loseAll) // accept was sent, and has not come yet
	r.tunnels.add(y)
	defer x.Close()
	defer y.Close()
	y.Probe()
	y.Reroute()
	came(t, x, y, 1)
}

// The clock may have gone back since the process ended that had this id before.
func TestTheLinkStateOfAProcessWhoseClockWentBackCounts(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(3))
	r := f.nodes[0].router
	number := uint64(time.Now().Add(time.Hour).UnixNano())
	r.receiveLinkState(r.sides[Left].Load(), &frame.Header{
		Kind: frame.LinkState, Src: link.MakeID(2, 1), Epoch: uint32(number), Seq: uint32(number >> 32),
		States: uint32(stateDown) | uint32(stateDown)<<8,
	}, nil)
	for _, n := range []*Node{f.nodes[0], f.nodes[2]} {
		require.Eventually(t, func() bool {
			h := n.Hosts()[1]
			return h.Epoch > number && h.Left == "up" && h.Right == "up"
		}, 60*time.Second, time.Millisecond)
	}
}

// forget has a host know nothing of another one's process, so that it refuses its tunnels, until the
// function that is returned is called.
func (f *fabric) forget(at, host int) (remember func()) {
	r := f.nodes[at-1].router
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.linkStates[host]
	older := *known
	older.id = link.MakeID(host, 9) // with the same number, so that a late copy changes nothing
	r.linkStates[host] = &older
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.linkStates[host] = known
	}
}

// What asks for a tunnel may be there before the link state that names who asks: it comes
// again, every 50 ms, until that is there.
func TestARequestThatOvertakesTheLinkStateIsTakenWhenThatComes(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	f.agrees(t, 1, "at the beginning")
	r := f.nodes[2].router
	remember := f.forget(3, 1)
	made := make(chan error)
	go func() {
		_, err := f.nodes[0].Peer(within(t), link.MakeID(3, 1))
		made <- err
	}()
	require.Eventually(t, func() bool { return r.drops[frame.DropStranger].Load() >= 3 }, 60*time.Second, time.Millisecond)
	select {
	case err := <-made:
		require.Fail(t, "it was not refused", "%v", err)
	default:
	}
	remember()
	require.NoError(t, <-made)
}

// A peer that takes longer than a call of Peer waits is made nevertheless, for the next call.
func TestAPeerIsMadeAlthoughNobodyWaitsAnyMore(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	f.agrees(t, 1, "at the beginning")
	remember := f.forget(3, 1)
	ctx, cancel := context.WithCancel(context.Background())
	made := make(chan error)
	go func() {
		_, err := f.nodes[0].Peer(ctx, link.MakeID(3, 1))
		made <- err
	}()
	require.Eventually(t, func() bool { return f.nodes[2].router.drops[frame.DropStranger].Load() > 0 }, 60*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-made, context.Canceled)
	remember()
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(f.nodes[0].Peers(), func(p *link.Peer) bool { return p.ID() == link.MakeID(3, 1) })
	}, 60*time.Second, time.Millisecond)
}

// A node that is closed asks no more, and does not wait for an answer.
func TestANodeThatIsClosedAsksNoMore(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	f.agrees(t, 1, "at the beginning")
	f.forget(3, 1)
	made := make(chan error)
	go func() {
		_, err := f.nodes[0].Peer(context.Background(), link.MakeID(3, 1))
		made <- err
	}()
	require.Eventually(t, func() bool { return f.nodes[2].router.drops[frame.DropStranger].Load() > 0 }, 60*time.Second, time.Millisecond)
	f.nodes[0].Close()
	require.ErrorIs(t, <-made, link.ErrClosed)
}
