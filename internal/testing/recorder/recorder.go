package recorder

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/ntb"
)

// Reporter receives violations. A testing.TB is one.
type Reporter interface {
	Errorf(format string, args ...any)
}

// Recorder watches the bridges of a fabric.
type Recorder struct {
	report Reporter // immutable
	links  bool     // leaves out regions and tunnels; immutable

	mu      sync.Mutex // guards all that follows, and everything reachable from it
	ledgers []*ledger
	tunnels map[tunnelKey]*tunnel
	stores  uint64 // number of stores checked, of all bridges
	failed  bool   // the first violation was reported; consequences are not
}

// New returns a Recorder that reports the first violation to r. If r is nil, it
// panics.
func New(r Reporter) *Recorder {
	return &Recorder{report: r, tunnels: map[tunnelKey]*tunnel{}}
}

// For returns the Recorder of a test. The test fails with the first violation. In
// benchmarks and under the race detector For returns nil, whose Pair leaves the
// devices alone.
func For(t testing.TB) *Recorder {
	if _, ok := t.(*testing.B); ok || race {
		return nil
	}
	return New(t)
}

// ForLinks is For, but checks links and lanes only. It is for tests whose control blocks, queues,
// messages and tunnels do not follow the protocol.
func ForLinks(t testing.TB) *Recorder {
	r := For(t)
	if r != nil {
		r.links = true
	}
	return r
}

// Pair wraps the two ends of a bridge in devices that record. Nothing else may use a
// and b from then on. A nil Recorder returns a and b.
func (r *Recorder) Pair(a, b ntb.Device) (ntb.Device, ntb.Device) {
	if r == nil {
		return a, b
	}
	x, y := &Device{Device: a, rec: r}, &Device{Device: b, rec: r}
	l := newLedger(r, [2]int{len(a.Inbound()), len(b.Inbound())}, [2][]byte{a.Inbound(), b.Inbound()})
	l.scratch = a.Caps().DMAChannels+b.Caps().DMAChannels > 0
	c := &cable{rec: r, direct: l, sizes: [2]int{len(a.Inbound()), len(b.Inbound())}, in: [2][]byte{a.Inbound(), b.Inbound()}}
	x.way = way{cable: c, side: 0}
	y.way = way{cable: c, side: 1}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledgers = append(r.ledgers, l)
	return x, y
}

// Connect informs the Recorder that two nodes have connected two endpoints without set-up
// messages, and granted each other their control blocks and first queues. They use the most recent
// bridge or tunnel between the nodes. It must be called before their first stores.
func (r *Recorder) Connect(a uint32, endA hello.Endpoint, b uint32, endB hello.Endpoint) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range slices.Backward(r.ledgers) {
		for x := range 2 {
			if l.ids[x] != a || l.ids[1-x] != b {
				continue
			}
			if ea, eb := l.open(x, endA), l.open(1-x, endB); ea != nil && eb != nil {
				ea.join(eb)
			}
			return
		}
	}
	r.violated(nil, "no bridge joins %#x and %#x", a, b)
}

// Stores returns how many stores were checked.
func (r *Recorder) Stores() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stores
}

// violated reports a violation, if it is the first of all, with the last stores
// before it. The caller holds r.mu.
func (r *Recorder) violated(h *history, format string, args ...any) {
	if r.failed {
		return
	}
	r.failed = true
	s := fmt.Sprintf(format, args...)
	if h != nil {
		s += ", after\n" + h.String()
	}
	if r.report == nil {
		panic("recorder: " + s)
	}
	r.report.Errorf("recorder: %s", s)
}

// note is one store.
type note struct {
	number uint64
	side   int // the side that stores
	op     op
	off    int // in the window, or of a queue or control block if where says so
	n      int
	v      uint64
	where  string
}

// op is a way to store.
type op uint8

const (
	opStore op = iota
	opStore64
	opPublish32
	opPublish64
	opDMA
)

func (o op) String() string {
	return [...]string{"store", "store64", "publish32", "publish64", "dma"}[o]
}

func (n note) String() string {
	s := fmt.Sprintf("#%d side %d: %v of %d bytes at %#x", n.number, n.side, n.op, n.n, n.off)
	if n.where != "" {
		s += ", " + n.where
	}
	if n.op != opStore && n.op != opDMA {
		s += fmt.Sprintf(": %#x", n.v)
	}
	return s
}

// history keeps the last stores of a connection, or of a link.
type history struct {
	notes [32]note
	count int
}

func (h *history) add(n note) {
	h.notes[h.count%len(h.notes)] = n
	h.count++
}

func (h *history) String() string {
	var b strings.Builder
	for i := max(0, h.count-len(h.notes)); i < h.count; i++ {
		fmt.Fprintf(&b, "\t%v\n", h.notes[i%len(h.notes)])
	}
	return b.String()
}
