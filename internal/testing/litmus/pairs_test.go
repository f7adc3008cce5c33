//go:build linux && (amd64 || arm64) && !race

package litmus

import (
	"sync/atomic"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/shm/membarrier"
	"github.com/ntbnet/ntbnet/ntb"
)

// none says that the ordering of neither side is taken out.
const none = -1

// litmus is a test of one pair.
type litmus struct {
	pair string
	by   string // what orders it
	// steps are what the sides do in a round: store, order unless the ordering is
	// taken out of this side, and look. They report whether they saw the other's
	// store of the round. Side 0 is the side that works.
	steps [2]func(s *side, r uint64, out int) (saw bool)
	outs  []int // the sides whose ordering can be taken out
	skew  int   // the sides begin a round up to 2^(skew-1) turns of an empty loop apart

	begin  func(s *side, first uint64) // called before the first round; may be nil
	before func(s *side, r uint64)     // called before round r, perhaps during the other side's last step; may be nil

	threads    bool // the sides are threads of one process
	membarrier bool // only where there is membarrier
}

// word is a word of the other side's window. It is published, as every word that
// the code orders, and looked at.
type word struct {
	off  int
	wide bool // 8 bytes rather than 4
}

func (w word) publish(s *side, r uint64) {
	if w.wide {
		s.out.Publish64(w.off, r)
	} else {
		s.out.Publish32(w.off, uint32(r))
	}
}

func (w word) seen(s *side, r uint64) bool {
	if w.wide {
		return ntb.Load64(s.in, w.off) == r
	}
	return ntb.Load32(s.in, w.off) == uint32(r)
}

var (
	a64, a32 = word{wordA, true}, word{wordA, false}
	b64, b32 = word{wordB, true}, word{wordB, false}
)

// litmuses are the tests. The second process finds them by their index.
var litmuses = []litmus{
	armed("S1", a64, b32), fenced("S1", a64, b32),
	armed("S2", a64, b32), fenced("S2", a64, b32),
	parking("S3", a64, b32),
	fenced("S4", a32, b32),
	armed("S6", a64, b32), fenced("S6", a64, b32),
	armed("S7", a32, b32), fenced("S7", a32, b32),
	heap("S8", true), heap("S8", false),
	full("S9"), full("S10"), full("S11"), bell("S11"),
	doorbell("S12"),
	flag("S13"), flags("S14"), flag("S16"), flag("S17"),
	quiet("S18"),
	fenced("S19", a64, b32),
}

// In armed, the side that works has no fence. The side that is about to sleep makes
// both pass one.
func armed(pair string, a, b word) litmus {
	return litmus{
		pair: pair, by: "Device.Order", outs: []int{1}, skew: 13, membarrier: true,
		steps: [2]func(*side, uint64, int) bool{
			func(s *side, r uint64, _ int) bool {
				a.publish(s, r)
				return b.seen(s, r)
			},
			func(s *side, r uint64, out int) bool {
				b.publish(s, r)
				if out != 1 {
					s.dev.Order()
				}
				return a.seen(s, r)
			},
		},
	}
}

// In fenced, each side fences.
func fenced(pair string, a, b word) litmus {
	step := func(me int, mine, theirs word) func(*side, uint64, int) bool {
		return func(s *side, r uint64, out int) bool {
			mine.publish(s, r)
			if out != me {
				ntb.Fence()
			}
			return theirs.seen(s, r)
		}
	}
	return litmus{
		pair: pair, by: "Fence at both sides", outs: []int{0, 1}, skew: 9,
		steps: [2]func(*side, uint64, int) bool{step(0, a, b), step(1, b, a)},
	}
}

// In parking, the side that works looks without a fence. If it has not seen the arm
// word, it fences and looks again, as the parking bit asks.
func parking(pair string, a, b word) litmus {
	l := fenced(pair, a, b)
	l.by = "Fence by parkingBit"
	l.steps[0] = func(s *side, r uint64, out int) bool {
		a.publish(s, r)
		saw := b.seen(s, r)
		if !saw {
			if out != 0 {
				ntb.Fence()
			}
			saw = b.seen(s, r)
		}
		return saw
	}
	return l
}

// In heap, puts are plain stores. The arm word is in the heap of the side that
// sleeps, where the side that works looks at it.
func heap(pair string, barrier bool) litmus {
	l := litmus{
		pair: pair, by: "Fence at both sides", outs: []int{0}, skew: 9,
		begin: func(s *side, first uint64) {
			if s.me == 1 {
				atomic.StoreUint32(s.own32(wordB), uint32(first-1))
			}
		},
	}
	if barrier {
		l.by, l.outs, l.skew, l.membarrier = "membarrier", []int{1}, 13, true
	}
	l.steps = [2]func(*side, uint64, int) bool{
		func(s *side, r uint64, out int) bool {
			arm := s.out.Bytes(wordB, 4)
			s.plain(wordA, r)
			if !barrier && out != 0 {
				ntb.Fence()
			}
			return ntb.Load32(arm, 0) == uint32(r)
		},
		func(s *side, r uint64, out int) bool {
			atomic.AddUint32(s.own32(wordB), 1)
			switch {
			case !barrier:
				ntb.Fence()
			case out != 1:
				if err := membarrier.Global(); err != nil {
					panic(err)
				}
			}
			return ntb.Load64(s.in, wordA) == r
		},
	}
	return l
}

// In full, side 0 wakes side 1 by a channel that already has a token. Side 0 is
// blind if it leaves the channel alone. Side 1 is blind if it finds only the token.
func full(pair string) litmus {
	return litmus{
		pair: pair, by: "Fence before a full channel", outs: []int{0}, skew: 9, threads: true,
		before: func(s *side, r uint64) {
			if s.me == 1 {
				ring(s.bells[r%2])
			}
		},
		steps: [2]func(*side, uint64, int) bool{
			func(s *side, r uint64, out int) bool {
				a64.publish(s, r)
				if out != 0 {
					ntb.Fence()
				}
				return ring(s.bells[r%2])
			},
			func(s *side, r uint64, _ int) bool {
				<-s.bells[r%2]
				return a64.seen(s, r)
			},
		},
	}
}

// ring puts a token into a channel. It returns false if the channel has one
// already.
func ring(bell chan struct{}) bool {
	select {
	case bell <- struct{}{}:
		return true
	default:
		return false
	}
}

// bell is full with the device's own doorbell. A lost wake-up does not end.
func bell(pair string) litmus {
	return litmus{
		pair: pair, by: "the device", skew: 9, threads: true,
		before: func(s *side, r uint64) {
			if s.me == 1 {
				s.peer.RingDoorbell(0)
			}
		},
		steps: doorbell("").steps,
	}
}

// In doorbell, side 0 rings while side 1 is about to wait. A lost wake-up does not
// end.
func doorbell(pair string) litmus {
	return litmus{
		pair: pair, by: "the device", skew: 15,
		steps: [2]func(*side, uint64, int) bool{
			func(s *side, r uint64, _ int) bool {
				a64.publish(s, r)
				s.dev.RingDoorbell(0)
				return true
			},
			func(s *side, r uint64, _ int) bool {
				for {
					if err := s.dev.WaitDoorbell(0); err != nil {
						return false // the other side knows
					}
					if a64.seen(s, r) {
						return true
					}
				}
			},
		},
	}
}

// In flag, side 1 stores a flag by sync/atomic. Side 0 stands for two: the peer, whose
// word is visible to all when it is found, and the goroutine that finds it and then
// looks at the flag.
func flag(pair string) litmus {
	l := flags(pair)
	l.by, l.outs = "sync/atomic at the side that waits", []int{1}
	l.steps[0] = func(s *side, r uint64, _ int) bool {
		a64.publish(s, r)
		ntb.Fence()
		return b64.seen(s, r)
	}
	return l
}

// In flags, both sides store by sync/atomic.
func flags(pair string) litmus {
	step := func(me int, mine, theirs word) func(*side, uint64, int) bool {
		return func(s *side, r uint64, out int) bool {
			if out != me {
				atomic.StoreUint64(s.word64(mine.off), r)
			} else {
				mine.publish(s, r)
			}
			return theirs.seen(s, r)
		}
	}
	return litmus{
		pair: pair, by: "sync/atomic at both sides", outs: []int{0, 1}, skew: 9,
		steps: [2]func(*side, uint64, int) bool{step(0, a64, b64), step(1, b64, a64)},
	}
}

// In quiet, both sides put, and wait until the put can be seen.
func quiet(pair string) litmus {
	l := fenced(pair, a64, b64)
	step := func(me int, mine, theirs word) func(*side, uint64, int) bool {
		return func(s *side, r uint64, out int) bool {
			s.plain(mine.off, r)
			if out != me {
				ntb.Fence()
			}
			return theirs.seen(s, r)
		}
	}
	l.steps = [2]func(*side, uint64, int) bool{step(0, a64, b64), step(1, b64, a64)}
	return l
}

// own32 returns a word of this side's own window, for sync/atomic.
func (s *side) own32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&s.in[off])) }
