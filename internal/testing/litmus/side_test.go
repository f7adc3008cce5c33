//go:build linux && (amd64 || arm64) && !race

package litmus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// Words of a window, all written by the other side. Each has a cache line of its own.
// The line beside it is not used, since processors fetch lines in pairs.
const (
	wordBegun = 128 * iota // the round that the other side has begun
	wordOdd                // the last odd round in which it did not see our word
	wordEven               // the last even one
	wordLast               // the round in which both end, or 0
	wordA                  // the words of the pair
	wordB
	windowBytes = 64 << 10
)

// testTimeout is how long a side waits for the other one. It guards against a hang.
const testTimeout = time.Minute

// side is one of the two sides.
type side struct {
	dev ntb.Device
	me  int
	in  []byte     // written by the other side
	out ntb.Window // the other side's
	rng *rand.Rand
	// For two sides in one process: the other end of the bridge, and channels of
	// capacity 1 for odd and even rounds.
	peer  ntb.Device
	bells [2]chan struct{}
}

func newSide(dev ntb.Device, me int) *side {
	return &side{dev: dev, me: me, in: dev.Inbound(), out: dev.Outbound(), rng: rand.New(rand.NewPCG(1, uint64(me)))}
}

// limits are those of one half of a test.
type limits struct {
	least, most uint64        // rounds
	d           time.Duration // for the half, unless fewer than least rounds are done
	enough      uint64        // blind rounds at which to end; 0 for any number
}

// outcome is what one half of a test saw.
type outcome struct {
	rounds uint64
	blind  uint64 // rounds in which neither side saw the other's store
	first  uint64 // the first of those
}

// wordBlind returns the offset of the word in which the other side says that it was
// blind in round r.
func wordBlind(r uint64) int {
	if r%2 == 0 {
		return wordEven
	}
	return wordOdd
}

// run plays rounds from first on. Side 0 decides by l when both end, and returns what
// was seen. out is the side whose ordering is taken out, or none.
func (s *side) run(c *litmus, out int, first uint64, l limits) (o outcome, err error) {
	var (
		step  = c.steps[s.me]
		start = time.Now()
		last  uint64 // round in which both end
		blind uint64 // the last round in which this side was blind
	)
	if c.begin != nil {
		c.begin(s, first)
	}
	for r := first; ; r++ {
		if s.me == 0 && s.enough(l, o, start) {
			last = r
			s.out.Publish64(wordLast, last)
		}
		if c.before != nil {
			c.before(s, r)
		}
		s.out.Publish64(wordBegun, r)
		if err := s.until(wordBegun, r); err != nil {
			return o, err
		}
		// The previous round has ended at both sides. The other side may be at the end
		// of this round already, but not of the next.
		if s.me == 0 && r > first && blind == r-1 && ntb.Load64(s.in, wordBlind(r-1)) == r-1 {
			if o.blind++; o.blind == 1 {
				o.first = o.rounds
			}
		}
		if s.me == 1 {
			last = ntb.Load64(s.in, wordLast)
		}
		if last == r {
			if !s.dev.LinkUp() {
				err = ntb.ErrLinkDown // by Order, which failed
			}
			return o, err
		}
		for range s.rng.IntN(1 << s.rng.IntN(c.skew)) {
		}
		if !step(s, r, out) {
			blind = r
			s.out.Publish64(wordBlind(r), r)
		}
		o.rounds++
	}
}

func (s *side) enough(l limits, o outcome, start time.Time) bool {
	switch {
	case o.rounds < l.least:
		return false
	case o.rounds >= l.most || l.enough > 0 && o.blind >= l.enough:
		return true
	}
	return o.rounds%64 == 0 && time.Since(start) > l.d
}

// until waits until the other side has published at least r at off. A side that waits for
// long yields the processor, since the other side may need it.
func (s *side) until(off int, r uint64) error {
	var since time.Time
	for i := 1; ntb.Load64(s.in, off) < r; i++ {
		if i < 4096 {
			ntb.Pause()
			continue
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 20000}, nil)
		switch {
		case since.IsZero():
			since = time.Now()
		case !s.dev.LinkUp():
			return ntb.ErrLinkDown
		case time.Since(since) > testTimeout:
			return fmt.Errorf("side %d: round %d: the other side does not come", s.me, r)
		}
	}
	return nil
}

// processor is a thread that is bound to one of the processors that this process may
// use. If there are two, side 0 has the first and side 1 the last.
type processor struct {
	calls chan func() error
	ended chan error
}

func newProcessor(me int) (*processor, error) {
	p := &processor{make(chan func() error), make(chan error, 1)}
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		p.ended <- bind(me)
		for f := range p.calls {
			p.ended <- f()
		}
	}()
	return p, <-p.ended
}

// start runs f there. The error of f is sent to ended.
func (p *processor) start(f func() error) { p.calls <- f }

func (p *processor) run(f func() error) error {
	p.start(f)
	return <-p.ended
}

func (p *processor) close() { close(p.calls) }

func bind(me int) error {
	cpus, err := processors()
	if err != nil || len(cpus) < 2 {
		return err
	}
	var one unix.CPUSet
	if me == 0 {
		one.Set(cpus[0])
	} else {
		one.Set(cpus[len(cpus)-1])
	}
	return unix.SchedSetaffinity(0, &one)
}

// processors returns the processors that this process may use.
func processors() (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	for i := range 8 * int(unsafe.Sizeof(set)) {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	if len(cpus) == 0 {
		return nil, errors.New("no processors")
	}
	return cpus, nil
}

// word64 returns a word of the other side's window, for sync/atomic.
func (s *side) word64(off int) *uint64 {
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(s.out.Bytes(off, 8))))
}

// plain is an ordinary store to the other side's window, as of a put.
func (s *side) plain(off int, r uint64) {
	if runtime.GOARCH == "amd64" {
		binary.LittleEndian.PutUint64(s.out.Bytes(off, 8), r)
		return
	}
	atomic.StoreUint64(s.word64(off), r)
}
