package ntbtest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Offsets in the inbound window of each side during order.
const (
	firstWord  = 0   // the peer's round, published first
	secondWord = 64  // the round again, after the payload
	thirdWord  = 128 // the round again, last
	ackWord    = 192 // the last of this side's rounds that the peer has checked
	slotsAt    = 256
	slotSize   = 256 // payload, and a published word of 4 bytes at slotTail
	slotTail   = 248
)

// order runs a stream of rounds in each direction at once. A side that sees a word
// of a round must see all that was stored before it.
func order(e *env) {
	rounds := uint64(3000)
	if testing.Short() {
		rounds = 500
	}
	for _, ends := range [][2]ntb.Device{{e.a, e.b}, {e.b, e.a}} {
		from, to := ends[0], ends[1]
		slots := uint64(min(64, (len(to.Inbound())-slotsAt)/slotSize))
		e.start(func() { orderProduce(e, from, rounds, slots) })
		e.start(func() { orderConsume(e, to, rounds, slots) })
	}
	e.wait("both streams end")
}

// fill writes the payload of a round. The round determines its length too.
func fill(buf *[slotTail]byte, round uint64) []byte {
	p := buf[:1+round*7%240]
	for i := range p {
		p[i] = byte(round*31 + uint64(i)*7)
	}
	return p
}

func orderProduce(e *env, d ntb.Device, rounds, slots uint64) {
	in, out := d.Inbound(), d.Outbound()
	var buf [slotTail]byte
	for r := uint64(1); r <= rounds; r++ {
		if r > slots && !e.until(fmt.Sprintf("round %d checked by the peer", r-slots),
			func() bool { return ntb.Load64(in, ackWord) >= r-slots }) {
			return
		}
		slot := slotsAt + int(r%slots)*slotSize
		p, shift := fill(&buf, r), int(r%8)
		half := len(p) / 2
		out.Write(slot+shift, p[:half])
		out.Publish32(slot+slotTail, uint32(r))
		out.Write(slot+shift+half, p[half:])
		out.Publish64(firstWord, r)
		out.Publish64(secondWord, r)
		out.Publish64(thirdWord, r)
	}
}

func orderConsume(e *env, d ntb.Device, rounds, slots uint64) {
	in, out := d.Inbound(), d.Outbound()
	var buf [slotTail]byte
	for next := uint64(1); next <= rounds; {
		var third uint64
		if !e.until(fmt.Sprintf("round %d published", next), func() bool {
			third = ntb.Load64(in, thirdWord)
			return third >= next
		}) {
			return
		}
		second := ntb.Load64(in, secondWord)
		first := ntb.Load64(in, firstWord)
		if first < second || second < third {
			e.Errorf("words published in turn: third is %d, then second %d, then first %d", third, second, first)
			return
		}
		for ; next <= third; next++ {
			slot := slotsAt + int(next%slots)*slotSize
			want, shift := fill(&buf, next), int(next%8)
			if got := in[slot+shift:][:len(want)]; string(got) != string(want) {
				e.Errorf("round %d is published, but its payload is % x, want % x", next, got, want)
				return
			}
			if got := ntb.Load32(in, slot+slotTail); got != uint32(next) {
				e.Errorf("round %d is published, but the word before it is of round %d", next, got)
				return
			}
		}
		out.Publish64(ackWord, third)
	}
}

// orderDrains checks without waiting, because Order has waited.
func orderDrains(e *env) {
	in, out := e.b.Inbound(), e.a.Outbound()
	var buf [slotTail]byte
	for r := uint64(1); r <= 50; r++ {
		p := fill(&buf, r)
		out.Write(slotsAt, p)
		out.Publish64(firstWord, r)
		e.a.Order()
		if got := ntb.Load64(in, firstWord); got != r {
			e.Fatalf("after Order the peer's word is %d, want %d", got, r)
		}
		if got := in[slotsAt:][:len(p)]; string(got) != string(p) {
			e.Fatalf("round %d: after Order the peer's payload is % x, want % x", r, got, p)
		}
	}
}

func orderBothSides(e *env) {
	var done atomic.Bool
	e.start(func() {
		out := e.b.Outbound()
		for r := uint64(1); !done.Load() && !e.stop.Load(); r++ {
			out.Publish64(0, r)
			e.b.Order()
		}
	})
	e.start(func() {
		defer done.Store(true)
		out := e.a.Outbound()
		for r := uint64(1); r <= 50 && !e.stop.Load(); r++ {
			out.Publish64(0, r)
			e.a.Order()
		}
	})
	e.wait("Order returns on both sides")
}

// handshake tests what every wait relies on. A publisher stores data, and then
// checks whether the peer has armed itself and needs a doorbell. A sleeper arms
// itself, calls Order, and checks whether there is data. If both miss what the
// other stored, the sleeper sleeps for ever.
func handshake(e *env) {
	rounds, enough := uint64(20000), time.Second
	if testing.Short() {
		rounds, enough = 3000, time.Second/4
	}
	const atLeast = 50 // rounds, however slow the device is
	var (
		start  = time.Now()
		last   atomic.Uint64    // the round after which both end; 0 while not known
		begun  [2]atomic.Uint64 // round that each side has begun
		ended  [2]atomic.Uint64
		missed [2]uint64 // last round in which the side saw nothing; guarded by ended
	)
	side := func(me int, d ntb.Device) {
		in, out, fence := d.Inbound(), d.Outbound(), d.Caps().FenceToLook
		rng := rand.New(rand.NewPCG(3, uint64(me)))
		other := 1 - me
		for r := uint64(1); last.Load() == 0 || r <= last.Load(); r++ {
			begun[me].Store(r)
			if !e.until("the other side begins", func() bool { return begun[other].Load() >= r }) {
				return
			}
			// The stores must meet within the few nanoseconds for which a CPU keeps
			// one to itself. In a slow device that time is much longer.
			for range rng.IntN(1 << rng.IntN(12)) {
			}
			out.Publish64(0, r)
			if int(r%2) == me { // roles change with every round
				d.Order()
			} else if fence {
				ntb.Fence()
			}
			if ntb.Load64(in, 0) != r {
				missed[me] = r
			}
			ended[me].Store(r)
			if !e.until("the other side ends", func() bool { return ended[other].Load() >= r }) {
				return
			}
			if missed[0] == r && missed[1] == r {
				e.Errorf("round %d: both sides stored and neither saw the other's store", r)
				return
			}
			// Neither side is further than the next round, so both see it in time.
			if me == 0 && last.Load() == 0 && (r == rounds || r >= atLeast && time.Since(start) > enough) {
				last.Store(r + 1)
			}
		}
	}
	e.start(func() { side(0, e.a) })
	e.start(func() { side(1, e.b) })
	e.wait("both sides end")
}
