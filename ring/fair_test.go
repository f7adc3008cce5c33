package ring

import (
	"math/rand/v2"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// greedy is a source that always has a frame to send.
type greedy struct {
	f    frame
	sent int
}

func (g *greedy) push(o *outLane, served bool) {
	for o.own(&g.f, nil, g, served) == putDone {
		g.sent++
		served = false
	}
}

func (g *greedy) serve(o *outLane) { g.push(o, true) }

// A lane that both own and forwarded traffic want all of is shared. The
// neighbours are played by the test, so that nothing depends on who gets to run. (With
// two slots, own traffic needs the whole lane empty, and gets a third where slots
// become free one by one.)
func TestOwnAndForwardedTrafficShareALane(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		o := small(3)
		o.Topology, o.Slots = Line, 3+rng.IntN(8)
		n := NewNode(MakeID(2, 1))
		require.NoError(t, n.Join(o))
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

		own := &greedy{f: frame{kind: frameAck, src: n.id, dst: MakeID(3, 1), hops: 3}}
		far := frame{kind: frameAck, src: MakeID(1, 1), dst: MakeID(3, 1), hops: 3}
		var b [frameHeader]byte
		far.encode(&b)
		var hop, credit uint32
		for range 2000 {
			// Host 1 has filled what it may; host 2 looks.
			for hop < ntb.Load32(left.Inbound(), laneCredit)+uint32(o.Slots) {
				hop++
				at := lanesAt + int((hop-1)%uint32(o.Slots))*(frameHeader+o.FrameBytes)
				from.Write(at+8, b[8:])
				from.Publish64(at, far.first(hop))
			}
			l.in[0].drain()
			own.push(r.out[0], false)
			// Host 3 has taken some.
			under := r.out[0].hop - credit
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
