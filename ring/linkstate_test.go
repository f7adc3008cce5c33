package ring

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// turningNumbers are the numbers at which comparisons turn.
var turningNumbers = []uint64{
	0, 1, 1<<62 - 1, 1 << 62, 1<<63 - 1, 1 << 63, 1<<63 + 1, 3 << 62, 1<<64 - 2, 1<<64 - 1,
}

func TestEachLinkStateNumberHasASuccessor(t *testing.T) {
	for _, n := range turningNumbers {
		require.True(t, newer(n+1, n), "%#x", n)
		require.False(t, newer(n, n+1), "%#x", n)
		require.False(t, newer(n, n), "%#x", n)
		require.True(t, newer(n+1<<63-1, n), "%#x", n)
		require.False(t, newer(n+1<<63+1, n), "%#x", n)
		for _, m := range turningNumbers {
			require.Equal(t, n != m, newer(n, m) != newer(m, n), "%#x, %#x", n, m)
		}
	}
}

// advertise has the right neighbour of host from receive a forged link state, and waits
// until it has taken it.
func (f *fabric) advertise(t *testing.T, from int, n linkState) {
	t.Helper()
	o := f.nodes[from-1].router.sides[Right].Load().out[0]
	for !o.inject(&frame.Header{
		Kind: frame.LinkState, Src: n.id, Epoch: uint32(n.number), Seq: uint32(n.number >> 32),
		States: uint32(n.sides[Left]) | uint32(n.sides[Right])<<8,
	}, nil) {
		time.Sleep(time.Millisecond)
	}
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.free() == f.o.Slots
	}, 30*time.Second, time.Millisecond)
}

// agrees requires that all nodes finally have the link state of a host that the host
// itself has.
func (f *fabric) agrees(t *testing.T, host int, why string, args ...any) {
	t.Helper()
	require.Eventuallyf(t, func() bool {
		own := f.nodes[host-1].Hosts()[host-1]
		for _, n := range f.nodes {
			h := n.Hosts()[host-1]
			if h.Left != "up" || h.Right != "up" || h.Epoch != own.Epoch || h.Process != 1 {
				return false
			}
		}
		return true
	}, 30*time.Second, time.Millisecond, why, args...)
}

func TestAForgedLinkStateOfAnyNumberIsOutdone(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	f.agrees(t, 4, "at the beginning")
	for _, host := range []int{3, 4} { // the node that receives it first, and one further on
		for _, number := range turningNumbers {
			f.advertise(t, 2, linkState{
				id: link.MakeID(host, 1), number: number, sides: [2]sideState{stateDown, stateDown},
			})
			f.agrees(t, host, "number %#x of host %d", number, host)
			// This holds from then on.
			r := f.nodes[host-1].router
			r.mu.Lock()
			r.originateLocked()
			r.mu.Unlock()
			r.changed(nil, host)
			f.agrees(t, host, "after number %#x of host %d", number, host)
		}
	}
}

// Of three numbers each may be newer than another.
func TestForgedLinkStatesThatOutdoEachOtherAreOutdone(t *testing.T) {
	leak.Check(t)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	f := newFabric(t, small(5))
	for range 10 {
		for from := 1; from <= 4; from++ {
			f.advertise(t, from, linkState{
				id: link.MakeID(5, 1), number: turningNumbers[rng.IntN(len(turningNumbers))],
				sides: [2]sideState{stateDown, stateDown},
			})
		}
		f.agrees(t, 5, "seed %d", seed)
	}
}

// Two processes with the same id supersede each other, but only from time to time.
func TestALinkStateOfANodesOwnIsOutdoneNowAndThen(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(3))
	f.agrees(t, 3, "at the beginning")
	r := f.nodes[2].router
	number := func() uint64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.linkStates[3].number
	}
	first := number()
	begin := time.Now()
	const times = 100
	for range times {
		f.advertise(t, 2, linkState{id: link.MakeID(3, 1), number: number() + 1})
	}
	f.agrees(t, 3, "at the end")
	// Each took the next number but one. Those that were not superseded are not counted.
	made := (number() - first) / 2
	require.LessOrEqual(t, made, 2+uint64(time.Since(begin)/supersedeEvery))
	require.Positive(t, made)
}

// A neighbour in a mesh sends every link state of itself, whatever process had its id
// before.
func TestTheLinkStateOfAMeshNeighbourCountsFromItsLinkOn(t *testing.T) {
	leak.Check(t)
	o := small(2)
	o.Topology = Mesh
	for _, number := range turningNumbers {
		a, b := joined(t, link.MakeID(1, 1), o), joined(t, link.MakeID(2, 1), o)
		a.router.mu.Lock()
		a.router.linkStates[2] = &linkState{id: b.id, number: number}
		a.router.mu.Unlock()
		x, y := ntbmem.Pair(o.LinkWindow(0))
		linked := make(chan error)
		go func() {
			_, err := b.Link(within(t), y, Direct)
			linked <- err
		}()
		_, err := a.Link(within(t), x, Direct)
		require.NoError(t, err)
		require.NoError(t, <-linked)
		require.Eventually(t, func() bool {
			return a.Hosts()[1].Epoch == b.Hosts()[1].Epoch
		}, 30*time.Second, time.Millisecond, "%#x", number)
		a.Close()
		b.Close()
	}
}

// A link state that changes while the last one waits for the lane is sent too.
func TestALinkStateThatChangesWhileItIsSentIsSentAgain(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(3))
	number := func(node, host int) uint64 {
		r := f.nodes[node].router
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.linkStates[host] == nil {
			return 0
		}
		return r.linkStates[host].number
	}
	allKnow := func() bool {
		for host := 1; host <= 3; host++ {
			if n := number(host-1, host); number(0, host) != n || number(1, host) != n || number(2, host) != n {
				return false
			}
		}
		return true
	}
	require.Eventually(t, allKnow, 30*time.Second, time.Millisecond)
	r := f.nodes[0].router
	adverts := r.sides[Right].Load().adverts
	change := func() {
		r.mu.Lock()
		r.originateLocked()
		r.mu.Unlock()
		adverts.add(1)
	}
	lane := adverts.link.out[0]
	lane.mu.Lock()
	made := adverts.frame
	var once sync.Once
	adverts.frame = func(host int) (fr frame.Header, body []byte, ok bool) {
		fr, body, ok = made(host)
		if host == 1 {
			once.Do(change) // after the frame was made, and before it is sent
		}
		return fr, body, ok
	}
	lane.mu.Unlock()
	change()
	require.Eventually(t, func() bool { return number(1, 1) == number(0, 1) }, 30*time.Second, time.Millisecond)
	lane.mu.Lock()
	defer lane.mu.Unlock()
	once.Do(func() { t.Fatal("no link state was sent") })
}
