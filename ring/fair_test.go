package ring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/tunnel"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// greedy is a source that always has a frame to send.
type greedy struct {
	f    frame.Header
	body []byte
	sent int
}

func (g *greedy) Send(o tunnel.Lane) (n int, more bool) {
	o.Put(&g.f, g.body)
	g.sent++
	return g.f.Size(), true
}

// A lane that both own and forwarded traffic want all of is shared. The test plays the
// neighbours, so that nothing depends on which goroutine runs. (With two slots, own
// traffic needs the whole lane empty, and gets a third where slots become free one by
// one.)
func TestOwnAndForwardedTrafficShareALane(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		o := small(3)
		o.Topology, o.Slots = Line, 3+rng.IntN(8)
		n := joined(t, link.MakeID(2, 1), o)
		size := o.LinkWindow(0)
		ldev, left := ntbmem.Pair(size)
		rdev, right := ntbmem.Pair(size)
		l, err := newLink(n.router, ldev, Left)
		require.NoError(t, err)
		r, err := newLink(n.router, rdev, Right)
		require.NoError(t, err)
		n.router.sides[Left].Store(l)
		n.router.sides[Right].Store(r)
		from, to := left.Outbound(), right.Outbound()

		own := &greedy{f: frame.Header{Kind: frame.Ack, Src: n.id, Dst: link.MakeID(3, 1), Hops: 3}}
		far := frame.Header{Kind: frame.Ack, Src: link.MakeID(1, 1), Dst: link.MakeID(3, 1), Hops: 3}
		var b [frame.HeaderBytes]byte
		far.Encode(&b)
		var hop, credit uint32
		for range 2000 {
			// Host 1 has sent as much as it may. Host 2 looks.
			for hop < ntb.Load32(left.Inbound(), laneCredit)+uint32(o.Slots) {
				hop++
				at := lanesAt + int((hop-1)%uint32(o.Slots))*(frame.HeaderBytes+o.FrameBytes)
				from.Write(at+8, b[8:])
				from.Publish64(at, far.First(hop))
			}
			l.in[0].drain()
			r.out[0].Want(own)
			// Host 3 has taken some frames.
			under := uint32(r.out[0].hop) - credit
			require.Positive(t, under, "seed %d: nothing goes on", seed)
			credit += 1 + uint32(rng.IntN(int(under)))
			to.Publish32(laneCredit, credit)
			r.out[0].poll()
		}
		st := r.out[0].stats
		all := st.ownFrames + st.fwdFrames
		require.GreaterOrEqual(t, st.ownFrames*10, all*4, "seed %d: own traffic of %d", seed, all)
		require.GreaterOrEqual(t, st.fwdFrames*10, all*4, "seed %d: forwarded traffic of %d", seed, all)
		require.Equal(t, uint64(own.sent), st.ownFrames)
		ldev.Close()
		rdev.Close()
		n.Close()
	}
}

// Frames have any size, and it is random which of these runs: the neighbour before,
// this node's worker, its own traffic, or the neighbour behind. If there is always
// traffic of both kinds, each gets its share of the bytes. This holds although own
// traffic needs only one of them to have run, and forwarded traffic two.
func TestOwnAndForwardedTrafficShareALaneWhoeverGetsToRun(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := small(3)
		o.Topology, o.Slots = Line, 4+rng.IntN(8)
		length := func() int { return 8 * rng.IntN(o.FrameBytes/8+1) }
		m := newMiddle(t, o, length())
		body := make([]byte, o.FrameBytes)
		own := &greedy{f: frame.Header{Kind: frame.Data, Src: m.n.id, Dst: link.MakeID(3, 1), Hops: 3, Length: uint32(length())}, body: body}
		var credit, arm uint32
		steps := []func(){
			func() { // The neighbour before has more than there is room for.
				for uint32(m.hop) < ntb.Load32(m.left.Inbound(), laneCredit)+uint32(o.Slots) {
					m.put()
				}
				arm++
				m.from.Publish32(laneSpaceArm, arm)
			},
			func() { m.in.drain(); m.in.pollOnward() },
			func() { m.out.Want(own) },
			func() { // The neighbour behind takes some.
				if n := rng.IntN(int(uint32(m.out.hop)-credit) + 1); n != 1 {
					credit += uint32(n) // one slot alone is not enough for own traffic
				}
				m.to.Publish32(laneCredit, credit)
				m.out.poll()
			},
		}
		var often []func()
		for _, step := range steps {
			often = append(often, slices.Repeat([]func(){step}, 1+rng.IntN(6))...)
		}
		for range 15000 {
			often[rng.IntN(len(often))]()
		}
		st := m.out.stats
		all := st.ownBytes + st.fwdBytes
		what := fmt.Sprintf("seed %d, %d slots, own frames of %d bytes, forwarded ones of %d: own %d, forwarded %d",
			seed, o.Slots, own.f.Size(), m.f.Size(), st.ownBytes, st.fwdBytes)
		require.GreaterOrEqual(t, st.ownBytes*10, all*4, what)
		require.GreaterOrEqual(t, st.fwdBytes*10, all*4, what)
		m.close()
	}
}

// The system may stop a goroutine that is at frames to be forwarded. If this node's
// own traffic is ahead, it waits for that goroutine to finish, and goes on then.
func TestOwnTrafficWaitsForWhoForwards(t *testing.T) {
	o := small(3)
	o.Topology, o.Slots = Line, 8
	m := newMiddle(t, o, 0)
	defer m.close()
	m.feed()
	require.True(t, m.in.drain()) // a frame to be forwarded
	own := &greedy{f: frame.Header{Kind: frame.Ack, Src: m.n.id, Dst: link.MakeID(3, 1), Hops: 3}}
	m.out.turns.lead = 1 // one byte ahead
	m.in.mu.Lock()       // as drain does
	m.in.draining.Store(true)
	m.out.Want(own)
	require.Zero(t, own.sent)
	m.in.draining.Store(false)
	m.in.mu.Unlock()
	m.in.pollOnward()
	require.Positive(t, own.sent)

	own.sent, m.out.turns.lead = 0, 1
	m.to.Publish32(laneCredit, uint32(m.out.hop)) // there is room again
	m.in.forwards.Store(false)                    // the last frame was for this node
	m.in.mu.Lock()
	m.in.draining.Store(true)
	m.out.Want(own)
	m.in.draining.Store(false)
	m.in.mu.Unlock()
	require.Positive(t, own.sent)
}

// The frames of a member's lane go one by one, each as it is found. They still get the
// member's share of the bytes beside a source of many small frames.
func TestAMemberAndAnotherSourceShareALane(t *testing.T) {
	o := small(3)
	o.Topology, o.Slots = Line, 4
	m := newOwner(t, o, 0)
	defer m.close()
	m.out.stall.watching = true
	m.out.Want(ownOf(m))
	for range 1000 {
		for m.hop < m.in.next.Load()+uint64(m.o.Slots)-1 {
			m.put()
		}
		m.in.drain()
		m.takenAll()
	}
	st := m.out.stats
	all := st.ownFrames + st.fwdFrames
	require.GreaterOrEqual(t, st.ownFrames*10, all*4, "%d own frames of %d", st.ownFrames, all)
	require.GreaterOrEqual(t, st.fwdFrames*10, all*4, "%d of a member of %d", st.fwdFrames, all)
}
