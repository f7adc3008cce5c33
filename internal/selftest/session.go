package selftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Offsets in both windows, see the package comment.
const (
	helloAt   = 0
	numberAt  = 8
	timeAt    = 16
	stepAt    = 64
	roundAt   = 128
	checkedAt = 192
	endAt     = 256
	verdictAt = 320
	payloadAt = 512

	leastWindow = 4096
	mostPayload = 64 << 10
)

const (
	magic   = 0x4e544254 // "NTBT"
	version = 1

	helloWord = magic<<32 | version

	roundBits = 40 // of a word of a phase
)

// open opens a session, and says hello.
func (t *test) open() error {
	ctx, cancel := context.WithTimeout(t.ctx, t.o.Wait)
	defer cancel()
	dev, err := t.attachment.Open(ctx)
	if err != nil && ctx.Err() != nil && t.ctx.Err() == nil {
		return t.alone(err)
	}
	if err != nil {
		return err
	}
	t.dev, t.in, t.out = dev, dev.Inbound(), dev.Outbound()
	t.bells = make(chan struct{}, 1)
	go hear(dev, t.bells)
	size := min(len(t.in), t.out.Len())
	if size < leastWindow {
		return fmt.Errorf("the windows have %d bytes, want %d at least", size, leastWindow)
	}
	t.area = min(size-payloadAt, mostPayload) &^ (slotSize - 1)
	t.out.Publish64(timeAt, uint64(t.o.Time.Milliseconds()))
	t.out.Publish64(numberAt, t.own)
	t.out.Publish64(helloAt, helloWord)
	var hello, number, ms uint64
	err = t.repeat(t.o.Wait, helloAt, helloWord, func() bool {
		hello, number, ms = ntb.Load64(t.in, helloAt), ntb.Load64(t.in, numberAt), ntb.Load64(t.in, timeAt)
		return hello != 0 && (hello != helloWord || number != 0 && ms != 0)
	})
	if err == errLate {
		return t.alone(errors.New("a program has the other end, and it says nothing"))
	}
	if err != nil {
		return err
	}
	return t.greeted(hello, number, ms)
}

// alone returns the error of a side that has waited long enough.
func (t *test) alone(err error) error {
	return fmt.Errorf("the other side has not come within %v, run ntbnet selftest there too: %w", t.o.Wait, err)
}

// greeted checks the peer's first words.
func (t *test) greeted(hello, number, ms uint64) error {
	switch {
	case hello>>32 != magic:
		return fmt.Errorf("the other side runs another program, whose first word is %#x: end it, and run ntbnet selftest there", hello)
	case uint32(hello) != version:
		return fmt.Errorf("the other side's selftest is of version %d, this one's of version %d: run the same on both", uint32(hello), version)
	case number == t.own || t.peer != 0 && t.peer != number || ms > uint64(MaxTime.Milliseconds()):
		return errors.New("the other side broke the protocol: its random number or its time cannot be")
	}
	t.peer, t.first = number, t.own < number
	t.guard = guard + time.Duration(ms)*time.Millisecond
	return nil
}

// hear passes on the doorbells of a session, and closes bells when its link is down.
func hear(dev ntb.Device, bells chan<- struct{}) {
	defer close(bells)
	for dev.WaitDoorbell(0) == nil {
		select {
		case bells <- struct{}{}:
		default:
		}
	}
}

// Polls between two looks at the clock, and polls after which await sleeps between those looks. Each sleep
// has at least napFor.
const (
	looksEvery = 64
	napAfter   = 1 << 12
	napFor     = 20 * time.Microsecond
)

// await polls until cond holds. It returns errLate after limit, errLost when the link is down, and the reason
// when the test is to end.
func (t *test) await(limit time.Duration, cond func() bool) error {
	if t.ctx.Err() != nil { // also where cond holds soon each time
		return context.Cause(t.ctx)
	}
	start := time.Now()
	for i := 1; !cond(); i++ {
		switch {
		case i%looksEvery != 0:
			ntb.Pause()
		case t.ctx.Err() != nil:
			return context.Cause(t.ctx)
		case !t.dev.LinkUp():
			if cond() { // what was stored before has arrived
				return nil
			}
			return errLost
		case time.Since(start) > limit:
			return errLate
		case i > napAfter:
			time.Sleep(napFor)
		default:
			runtime.Gosched()
		}
	}
	return nil
}

// repeatEvery is how often repeat publishes.
const repeatEvery = 100 * time.Millisecond

// repeat awaits cond, and meanwhile publishes a word again and again that it has published before. Where flushes
// are missing, what was stored may stay, and both sides have to get to the end nevertheless.
func (t *test) repeat(limit time.Duration, at int, v uint64, cond func() bool) error {
	for start := time.Now(); ; t.out.Publish64(at, v) {
		if err := t.await(repeatEvery, cond); err != errLate || time.Since(start) > limit {
			return err
		}
	}
}

// listen awaits what the peer does next in a phase.
func (t *test) listen(cond func() bool) error { return t.repeat(t.guard, stepAt, t.step, cond) }

// meet waits until the peer is as far as this side.
func (t *test) meet() error {
	t.step++
	t.out.Publish64(stepAt, t.step)
	err := t.listen(t.there)
	switch peer := t.peerStep(); {
	case err == nil && peer > t.step+1:
		return fmt.Errorf("the other side broke the protocol: it is at step %d, and this one at %d", peer, t.step)
	case err == errLate:
		return fmt.Errorf("the other side goes on no more: it is at step %d, and this one at %d", peer, t.step)
	}
	return err
}

// there reports whether the peer is as far as this side.
func (t *test) there() bool { return t.peerStep() >= t.step }

func (t *test) peerStep() uint64 { return ntb.Load64(t.in, stepAt) }

// past reports whether the peer has ended the part of a phase that both are in.
func (t *test) past() bool { return t.peerStep() > t.step }

// mark returns the word of a round of this phase.
func (t *test) mark(round uint64) uint64 { return t.step<<roundBits | round }

// publish publishes a round of this phase.
func (t *test) publish(at int, round uint64) { t.out.Publish64(at, t.mark(round)) }

// word returns the round of this phase that the peer has published, and 0 before it has.
func (t *test) word(at int) uint64 {
	w := ntb.Load64(t.in, at)
	if w>>roundBits != t.step {
		return 0
	}
	return w & (1<<roundBits - 1)
}

// fill fills p, whole words, with what the side whose random number is seed stores in a round.
func fill(p []byte, seed, round uint64) {
	x := seed ^ round*0x9e3779b97f4a7c15
	for off := 0; off < len(p); off += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(p[off:], x)
	}
}

// differs returns a description of the first byte at off of the window that is not as it must be, and
// whether there is one.
func (t *test) differs(off int, want []byte) (string, bool) {
	got := t.in[off : off+len(want)]
	if bytes.Equal(got, want) {
		return "", false
	}
	for i := range want {
		if b := got[i]; b != want[i] {
			return fmt.Sprintf("byte %d of %d is %#x, want %#x", i, len(want), b, want[i]), true
		}
	}
	return "it has come meanwhile", true
}
