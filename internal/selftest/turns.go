package selftest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// letter is the payload of a word or a doorbell, in bytes: two lines that it does not fill.
const letter = 88

// send stores the payload of a round and publishes its word.
func (t *test) send(round uint64) {
	var buf [letter]byte
	fill(buf[:], t.own, round)
	t.out.Write(payloadAt, buf[:])
	t.publish(roundAt, round)
}

// receive checks the payload of a round, and answers.
func (t *test) receive(c *Check, round uint64) {
	var buf [letter]byte
	fill(buf[:], t.peer, round)
	if what, bad := t.differs(payloadAt, buf[:]); bad {
		c.fail("round %d came before its payload: %s", round, what)
	}
	t.publish(checkedAt, round)
}

// answered waits for the answer to a round.
func (t *test) answered(round uint64) error {
	return t.await(t.o.Late, func() bool { return t.word(checkedAt) == round })
}

// exchange sends rounds as long as more reports so, which is told whether there is time left, and measures each until it is answered.
func (t *test) exchange(c *Check, sent func(), more func(time bool) bool) error {
	var times samples
	for end := time.Now().Add(t.o.Time / 2); more(time.Now().Before(end)); {
		c.Rounds++
		start := time.Now()
		t.send(c.Rounds)
		sent()
		switch err := t.answered(c.Rounds); {
		case err == errLate:
			c.Lost++
		case err != nil:
			return err
		default:
			took := time.Since(start)
			times.add(took)
			if took >= slowBell {
				c.Slow++
			}
		}
	}
	times.put(c)
	return nil
}

// sendWords measures words there and back. It stores nothing behind a word until it is answered: what does not leave by itself never arrives.
func (t *test) sendWords() error {
	c := Check{Name: "words", Pass: true}
	err := t.exchange(&c, func() {}, func(time bool) bool { return c.Rounds == 0 || c.Lost == 0 && time })
	if err != nil {
		return err
	}
	if c.Lost > 0 {
		c.fail("word %d, or its answer, did not arrive within %v: it stays until something else is stored", c.Rounds, t.o.Late)
	}
	c.Lost, c.Slow = 0, 0 // which are of doorbells
	t.ended(c)
	return nil
}

// next waits for the peer's next round, and returns it. It returns last if the peer's turn is over.
func (t *test) next(last uint64) (round uint64, err error) {
	err = t.listen(func() bool {
		past := t.past() // before the word, behind which it was published
		round = t.word(roundAt)
		return round != last || past
	})
	return round, err
}

// follow has check look at each round of the peer's turn.
func (t *test) follow(name string, check func(c *Check, round uint64)) error {
	c := Check{Name: name, Pass: true}
	for last := uint64(0); ; c.Rounds++ {
		round, err := t.next(last)
		if err != nil {
			return err
		}
		if round == last {
			t.checked(c)
			return nil
		}
		check(&c, round)
		last = round
	}
}

func (t *test) answerWords() error { return t.follow("peer's words", t.receive) }

// checked adds a check of what the other side has sent.
func (t *test) checked(c Check) {
	if c.Pass {
		c.Found = fmt.Sprintf("payload before word: %d checked", c.Rounds)
	}
	t.ended(c)
}

// So many doorbells are rung at least, also where the time is over, unless mostLost are lost.
const (
	leastRings = 20
	mostLost   = 5
)

// slowBell is the time from which a doorbell counts as slow. What polls finds one every 10 ms, and backends
// look for one whose interrupt was lost every 200 ms.
const slowBell = 20 * time.Millisecond

// ring rings for each word, and measures until the answer by a word. The word must be there when the doorbell comes.
func (t *test) ring() error {
	c := Check{Name: "doorbells", Pass: true}
	err := t.exchange(&c, func() { t.dev.RingDoorbell(0) }, func(time bool) bool { return c.Lost < mostLost && (c.Rounds < leastRings || time) })
	if err != nil {
		return err
	}
	switch {
	case c.Lost > 0:
		c.fail("%d of %d doorbells were lost, came before their word, or were answered after more than %v", c.Lost, c.Rounds, t.o.Late)
	case c.Slow == c.Rounds:
		c.fail("all %d doorbells took %v or longer: no interrupt arrives, and they were found by polling", c.Rounds, slowBell)
	}
	t.ended(c)
	return nil
}

// lookEvery is how often a side that waits for doorbells looks for the end of the phase.
const lookEvery = 5 * time.Millisecond

func (t *test) answerBells() error {
	c := Check{Name: "peer's doorbells", Pass: true}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last, start := uint64(0), time.Now()
	for said := start; !t.past(); {
		select {
		case <-t.ctx.Done():
			return t.ctx.Err()
		case now := <-tick.C:
			if now.Sub(start) > t.guard {
				return errLate
			}
			if now.Sub(said) > repeatEvery { // as listen does
				t.out.Publish64(stepAt, t.step)
				said = now
			}
		case _, up := <-t.bells:
			if !up {
				return errLost
			}
			if round := t.word(roundAt); round != last {
				t.receive(&c, round)
				last = round
				c.Rounds++
			}
		}
	}
	t.checked(c)
	return nil
}

// A store stores p at off.
type store struct {
	name string
	do   func(w *ntb.Window, off int, p []byte)
}

// stores are the kinds of stores that a window has. The order is that of the rounds.
func stores(w *ntb.Window) []store {
	words := func(one func(off int, v uint64)) func(*ntb.Window, int, []byte) {
		return func(_ *ntb.Window, off int, p []byte) {
			for i := 0; i < len(p); i += 8 {
				one(off+i, binary.LittleEndian.Uint64(p[i:]))
			}
		}
	}
	all := []store{
		{"publish", words(w.Publish64)},
		{"word", words(w.Store64)},
		{"write", (*ntb.Window).Write},
	}
	if w.Streams() {
		all = append(all, store{"stream", (*ntb.Window).Stream})
	}
	return all
}

// sendPieces stores a piece again and again by each kind of store, and measures until the last one is there.
func (t *test) sendPieces() error {
	piece := make([]byte, t.area)
	kinds := stores(&t.out)
	for i, kind := range kinds {
		c := Check{Name: "rate " + kind.name, Pass: true}
		round := uint64(i + 1)
		fill(piece, t.own, round)
		start := time.Now()
		for end := start.Add(t.o.Time / time.Duration(2*len(kinds))); c.Rounds == 0 || time.Now().Before(end); c.Rounds++ {
			if t.ctx.Err() != nil || !t.dev.LinkUp() {
				break // as the wait below reports
			}
			kind.do(&t.out, payloadAt, piece)
		}
		t.publish(roundAt, round)
		err := t.answered(round)
		if err == errLate {
			c.fail("the last piece, or the answer to it, did not arrive within %v", t.o.Late)
			t.ended(c)
			return nil
		}
		if err != nil {
			return err
		}
		took := cmp.Or(time.Since(start), 1)
		c.BytesPerSecond = float64(c.Rounds) * float64(len(piece)) / took.Seconds()
		c.Found = fmt.Sprintf("%.1f MB/s in pieces of %d KiB", c.BytesPerSecond/1e6, len(piece)>>10)
		t.ended(c)
	}
	return nil
}

func (t *test) checkPieces() error {
	want := make([]byte, t.area)
	return t.follow("peer's stores", func(c *Check, round uint64) {
		fill(want, t.peer, round)
		if what, bad := t.differs(payloadAt, want); bad {
			c.fail("a piece was published before it was there: %s", what)
		}
		t.publish(checkedAt, round)
	})
}
