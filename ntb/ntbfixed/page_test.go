package ntbfixed

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// pages are the header pages of two sides, in plain memory.
type pages [2][]byte

func newPages() pages { return pages{ntb.AlignedBytes(PageSize), ntb.AlignedBytes(PageSize)} }

func (m pages) begin(side int, epoch uint32) *page {
	return newPage(m[side], ntb.MappedWindow(m[1-side], ntb.Cacheable), epoch)
}

// turn is one turn of bring-up. It reports whether the side is ready.
func turn(t *testing.T, p *page) bool {
	p.publish()
	step, err := p.look()
	require.NoError(t, err)
	if step == newPeer {
		p.clear()
		p.answer()
		step, err = p.look()
		require.NoError(t, err)
	}
	return step == ready
}

// bringUp takes turns until both sides are ready.
func bringUp(t *testing.T, a, b *page) {
	for range 10 {
		x, y := turn(t, a), turn(t, b)
		if x && y {
			return
		}
	}
	t.Fatal("not ready after 10 turns each")
}

func TestBothSidesAnswerBeforeEitherIsReady(t *testing.T) {
	m := newPages()
	a, b := m.begin(0, 11), m.begin(1, 22)
	require.False(t, turn(t, a), "the peer has said nothing")
	require.False(t, turn(t, b), "the peer has not answered")
	require.True(t, turn(t, a))
	require.True(t, turn(t, b))
	a.setPeerSpad(3, 7)
	a.ring(15, 9)
	require.EqualValues(t, 7, b.spad(3))
	require.EqualValues(t, 9, b.rung(15))
	require.Zero(t, b.rung(14))
}

// The peer may begin again at any moment of this side's look. Its answer to the old session
// is no answer to the new one, in either order of reading.
func TestAnAnswerBelongsToTwoSessions(t *testing.T) {
	m := newPages()
	p := m.begin(0, 11)
	p.answered = 22
	answer := func(ours, theirs uint64) uint64 { return ours | theirs<<32 }
	for _, tt := range []struct {
		name        string
		seen, epoch uint64
		want        step
	}{
		{"nothing said", 0, 0, waiting},
		{"link gone", ^uint64(0), ^uint64(0), waiting},
		{"answered by the session that we answered", answer(11, 22), 22, ready},
		{"an earlier session of ours answered", answer(10, 22), 22, waiting},
		{"answered by the peer's earlier session", answer(11, 21), 22, waiting},
		{"new answer with the old epoch", answer(11, 23), 22, waiting},
		{"old answer with the new epoch", answer(11, 22), 23, newPeer},
		{"new answer with the new epoch, which we have not answered", answer(11, 23), 23, newPeer},
	} {
		require.Equal(t, tt.want, p.step(tt.seen, tt.epoch), tt.name)
	}
}

// TestSeedsOfBringUp begins and ends sessions of both sides at random moments. Two sides that are ready
// for each other are of the same pair of sessions, both of which have cleared their memory
// since the other's began.
func TestSeedsOfBringUp(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		m := newPages()
		var p [2]*page
		var up [2]bool
		next := uint32(1)
		for range 200 {
			x := rng.IntN(2)
			switch {
			case p[x] == nil || rng.IntN(12) == 0:
				if p[x] != nil && rng.IntN(2) == 0 {
					p[x].end() // else it died
				}
				p[x], up[x] = m.begin(x, next), false
				next++
			case up[x]:
				if p[x].hasEnded() {
					p[x], up[x] = m.begin(x, next), false
					next++
				}
			default:
				if rng.IntN(3) == 0 {
					p[x].peer.Publish64(epochAt, uint64(p[x].epoch))
					break // it was stopped after the first word
				}
				p[x].publish()
				step, err := p[x].look()
				require.NoError(t, err)
				if step == newPeer {
					if rng.IntN(3) == 0 {
						break // it was stopped between the two, and looks again
					}
					p[x].clear()
					p[x].answer()
				}
				if up[x] = step == ready; up[x] {
					require.Zero(t, p[x].spad(0), "seed %d: a word of an old session", seed)
					p[x].setPeerSpad(1, p[x].epoch)
				}
			}
			if up[0] && up[1] && !p[0].hasEnded() && !p[1].hasEnded() {
				require.Equal(t, p[0].epoch, p[1].answered, "seed %d", seed)
				require.Equal(t, p[1].epoch, p[0].answered, "seed %d", seed)
				require.Equal(t, p[0].epoch, p[1].spad(1), "seed %d: what was stored at once is lost", seed)
				require.Equal(t, p[1].epoch, p[0].spad(1), "seed %d: what was stored at once is lost", seed)
				p[x].setPeerSpad(0, p[x].epoch)
				require.Equal(t, p[x].epoch, p[1-x].spad(0), "seed %d", seed)
			}
		}
	}
}

// The end that an old session announces does not end the one that follows it.
func TestAnOldSessionDoesNotEndItsSuccessor(t *testing.T) {
	m := newPages()
	old, b := m.begin(0, 11), m.begin(1, 22)
	bringUp(t, old, b)
	a, b2 := m.begin(0, 12), m.begin(1, 23)
	require.False(t, turn(t, a))
	require.True(t, b.hasEnded(), "the peer has begun another session")
	bringUp(t, a, b2)
	old.end()
	require.False(t, b2.hasEnded())
	a.end()
	require.True(t, b2.hasEnded())
}

func TestAClosedSessionIsNotAnswered(t *testing.T) {
	m := newPages()
	a, b := m.begin(0, 11), m.begin(1, 22)
	a.publish()
	a.end()
	require.False(t, turn(t, b))
	require.Zero(t, b.answered)
	bringUp(t, m.begin(0, 12), b)
}

func TestAnotherVersionIsRefused(t *testing.T) {
	m := newPages()
	a := m.begin(0, 11)
	w := ntb.MappedWindow(m[0], ntb.Cacheable)
	w.Publish64(magicAt, pageMagic<<32|(pageVersion+1))
	_, err := a.look()
	require.ErrorIs(t, err, ntb.ErrVersion)
	require.ErrorContains(t, err, "the peer has version 4, this side 3")
	w.Publish64(magicAt, 7)
	_, err = a.look()
	require.ErrorContains(t, err, "0x7 is not the beginning of a header page")
	w.Publish64(magicAt, ^uint64(0)) // the link is gone
	step, err := a.look()
	require.NoError(t, err)
	require.Equal(t, waiting, step)
}

// A side counts its ticks without a change of the peer's heartbeat, however long they took.
func TestSilenceIsCounted(t *testing.T) {
	m := newPages()
	a, b := m.begin(0, 11), m.begin(1, 22)
	bringUp(t, a, b)
	for range 15 {
		require.LessOrEqual(t, b.tick(), 1)
		require.LessOrEqual(t, a.tick(), 1)
	}
	for i := range 4 {
		require.Equal(t, 1+i, a.tick())
	}
	b.tick()
	require.Zero(t, a.tick())
}

// A word about the end of a process is of one session alone.
func TestWhoIsTold(t *testing.T) {
	m := newPages()
	a, b := m.begin(0, 11), m.begin(1, 22)
	b.told = true
	bringUp(t, a, b)
	require.True(t, a.toldBy())
	require.False(t, b.toldBy())
	next := m.begin(1, 23)
	bringUp(t, a, next)
	require.False(t, a.toldBy())
}

func TestThePageIsLaidOutAsDocumented(t *testing.T) {
	names := map[string]int{
		"magic": magicAt, "seen": seenAt, "epoch": epochAt, "state": stateAt, "heartbeat": heartbeatAt,
		"id": idAt, "sizes": sizesAt, "told": toldAt, "scratchpads": spadsAt, "doorbell words": bellsAt, "mark": markAt,
	}
	rows := wiredoc.Table(t, "The header page", "offset")
	require.Len(t, rows, len(names))
	for _, row := range rows {
		at, ok := names[row["name"]]
		require.True(t, ok, row["name"])
		require.Equal(t, at, row.Number(t, "offset"), row["name"])
	}
}

// A side that looks often slows down while nothing comes, and is quick again at once.
func TestPace(t *testing.T) {
	var p pace
	for range 3 {
		require.Equal(t, firstLook, p.next(true))
		last, sum := firstLook, time.Duration(0)
		for sum < time.Second {
			next := p.next(false)
			require.GreaterOrEqual(t, next, last)
			require.LessOrEqual(t, next, max(firstLook, sum/50))
			last, sum = next, sum+next
		}
		require.Equal(t, idleLook, last)
		require.Equal(t, idleLook, p.next(false))
	}
}

// One side publishes the page of the example, and another one takes it from there.
func TestThePageIsThatOfTheExample(t *testing.T) {
	values, wire := wiredoc.Vector(t, "page")
	m := newPages()
	p := m.begin(0, 11)
	p.id = idWord(3, true)
	p.sizes = sizesWord(16*PageSize, 32*PageSize)
	p.found = 22
	p.answer()
	require.Equal(t, wire, m[1][:len(wire)])

	m = newPages()
	owner := m.begin(1, 22)
	owner.sizes = sizesWord(100*PageSize, 100*PageSize)
	copy(m[1], wire)
	step, err := owner.look()
	require.NoError(t, err)
	require.Equal(t, newPeer, step)
	owner.answer()
	step, err = owner.look()
	require.NoError(t, err)
	require.Equal(t, ready, step)
	id, interrupts, ok := owner.peerID()
	require.True(t, ok)
	on := map[bool]int{true: 1}[interrupts]
	in, out := owner.windows()
	require.Equal(t, values, fmt.Sprintf("seen=%d by=%d epoch=%d id=%d interrupts=%d takes=%d stores=%d",
		owner.epoch, owner.answered, owner.found, id, on, out/PageSize, in/PageSize))
}
