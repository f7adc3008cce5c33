package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/internal/link"
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
func asked(f *fabric) (*tunnel, *frame) {
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

// silenceAlarm has a tunnel send nothing again because it takes long.
func (t *tunnel) silenceAlarm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alarm.at = time.Unix(0, 0) // no other time is earlier
}

// came waits until a tunnel has taken n frames, and requires that the other end has sent
// each once.
func came(t *testing.T, x, y *tunnel, n uint32) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); x.expects() != n+1; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	require.Zero(t, y.arq.Stats().Resent)
}

// A link state comes while a tunnel is being made, and has a frame sent in it.
func TestAcceptIsTheFirstFrameOfATunnel(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	r := f.nodes[2].router
	x, open := asked(f)
	y := r.admit(linkKey{}, open)
	defer r.node.wg.Done() // there is no peer
	y.silenceAlarm()
	y.reroute() // as router.changed does
	y.probe()
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
	y := newAnswerer(r, linkKey{}, open)
	y.silenceAlarm()
	y.mu.Lock()
	y.loseAll(time.Now()) // accept was sent, and has not come yet
	y.mu.Unlock()
	r.tunnels.add(y)
	defer x.Close()
	defer y.Close()
	y.probe()
	y.reroute()
	came(t, x, y, 1)
}

// The clock may have gone back since the process ended that had this id before.
func TestTheLinkStateOfAProcessWhoseClockWentBackCounts(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(3))
	r := f.nodes[0].router
	number := uint64(time.Now().Add(time.Hour).UnixNano())
	r.receiveLinkState(r.sides[Left].Load(), &frame{
		kind: frameLinkState, src: link.MakeID(2, 1), epoch: uint32(number), seq: uint32(number >> 32),
		bells: uint32(stateDown) | uint32(stateDown)<<8,
	}, nil)
	for _, n := range []*Node{f.nodes[0], f.nodes[2]} {
		require.Eventually(t, func() bool {
			h := n.Hosts()[1]
			return h.Epoch > number && h.Left == "up" && h.Right == "up"
		}, 60*time.Second, time.Millisecond)
	}
}

// What asks for a tunnel may be there before the link state that names who asks: it comes
// again, every 50 ms, until that is there.
func TestARequestThatOvertakesTheLinkStateIsTakenWhenThatComes(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	f.agrees(t, 1, "at the beginning")
	r := f.nodes[2].router
	r.mu.Lock()
	known := r.linkStates[1]
	older := *known
	older.id = link.MakeID(1, 9) // with the same number, so that a late copy changes nothing
	r.linkStates[1] = &older
	r.mu.Unlock()
	made := make(chan error)
	go func() {
		_, err := f.nodes[0].Peer(within(t), link.MakeID(3, 1))
		made <- err
	}()
	require.Eventually(t, func() bool { return r.drops[dropStranger].Load() >= 3 }, 60*time.Second, time.Millisecond)
	select {
	case err := <-made:
		require.Fail(t, "it was not refused", "%v", err)
	default:
	}
	r.mu.Lock()
	r.linkStates[1] = known
	r.mu.Unlock()
	require.NoError(t, <-made)
}
