package selftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Options say how long a test takes.
type Options struct {
	Time time.Duration // of each phase; 1 ms to MaxTime
	Wait time.Duration // for the other side to come
	Late time.Duration // after which a store or a doorbell that has not arrived counts as lost

	// Each is called with each check when it has ended, and Phase with the name of each phase when it
	// begins. They may be nil.
	Each  func(Check)
	Phase func(string)
}

// MaxTime is the longest time of a phase.
const MaxTime = time.Hour

// guard is how long the peer may take for a step, besides the time of its phase.
const guard = time.Minute

var (
	errLost = errors.New("the link was lost: the other side has ended or was killed, or the cable is cut")
	errLate = errors.New("late")
)

// test is one run.
type test struct {
	// Constant.
	ctx        context.Context
	attachment ntb.Attachment
	o          Options
	own        uint64 // random number
	report     *Report

	// Constant after the first hello.
	peer  uint64 // the peer's random number
	guard time.Duration
	first bool

	// Of a session.
	dev   ntb.Device
	in    []byte
	out   ntb.Window
	area  int           // bytes for payload, in both windows
	bells chan struct{} // capacity 1; closed when the link is down
	step  uint64        // the last one that this side has published
}

// Run tests the wire of an attachment, which the caller closes. A report is returned with an error too: it has
// the checks until then. The error wraps [ntb.ErrInUse] if another process has the wire.
func Run(ctx context.Context, a ntb.Attachment, o Options) (*Report, error) {
	t := &test{ctx: ctx, attachment: a, o: o, own: rand.Uint64() | 1, report: newReport()}
	err := t.run()
	if t.dev != nil {
		err = errors.Join(err, t.dev.Close())
		for range t.bells { // until hear has returned
		}
	}
	t.report.finish(err)
	return t.report, err
}

func (t *test) run() error {
	t.begin("waiting for the other side")
	if err := t.open(); err != nil {
		return err
	}
	t.ended(t.report.describe(t.dev))
	for _, phase := range []struct {
		name string
		run  func() error
	}{
		{"order", t.order},
		{"words", t.inTurn(t.sendWords, t.answerWords)},
		{"rates", t.inTurn(t.sendPieces, t.checkPieces)},
		{"doorbells", t.inTurn(t.ring, t.answerBells)},
		{"link", t.relink},
		{"verdict", t.verdict},
	} {
		t.begin(phase.name)
		err := t.meet()
		if err == nil {
			err = phase.run()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	t.clear(0, payloadAt)
	return nil
}

// clear clears this side's window from one offset to another.
func (t *test) clear(from, to int) {
	for off := from; off < to; off += 8 {
		ntb.Clear64(t.in, off)
	}
}

func (t *test) begin(phase string) {
	if t.o.Phase != nil {
		t.o.Phase(phase)
	}
}

// inTurn returns a phase in which the first side does active and the other one passive, and then the
// other way round.
func (t *test) inTurn(active, passive func() error) func() error {
	return func() error {
		one, two := active, passive
		if !t.first {
			one, two = two, one
		}
		if err := one(); err != nil {
			return err
		}
		if err := t.meet(); err != nil {
			return err
		}
		return two()
	}
}

// verdict exchanges whether there were faults, so that both sides end alike. It clears the payload, while the peer
// is there: when its session has ended, what this side clears may be a copy.
func (t *test) verdict() error {
	t.clear(payloadAt, payloadAt+t.area)
	v := uint64(1)
	if !t.report.sound() {
		v = 2
	}
	t.publish(verdictAt, v)
	if err := t.repeat(t.guard, verdictAt, t.mark(v), func() bool { return t.word(verdictAt) != 0 }); err != nil {
		return err
	}
	c := Check{Name: "other side", Pass: t.word(verdictAt) == 1, Found: "found no fault"}
	if !c.Pass {
		c.Found = "found faults: see its report"
	}
	t.ended(c)
	return t.meet()
}

// ended adds a check to the report.
func (t *test) ended(c Check) {
	t.report.Checks = append(t.report.Checks, c)
	if t.o.Each != nil {
		t.o.Each(c)
	}
}
