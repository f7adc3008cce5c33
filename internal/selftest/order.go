package selftest

import (
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Payload of a round has a slot: up to slotTail bytes, and a word.
const (
	slotSize = 256
	slotTail = 248
)

// For stretch rounds as many are under way as there are slots, and then for as many one at a time: the receiver
// looks at a round the sooner the fewer there are.
const stretch = 256

// slot returns where a round's payload is.
func (t *test) slot(round uint64) int { return payloadAt + int(round%uint64(t.area/slotSize))*slotSize }

// size returns how many bytes of payload a round has.
func size(round uint64) int { return 1 + int(round*7%(slotTail-8)) }

// order has rounds go both ways at once. The side that sees the word of a round must see its payload.
func (t *test) order() error {
	c := Check{Name: "order", Pass: true}
	type result struct {
		sent  uint64
		fault string
		err   error
	}
	produced := make(chan result, 1)
	go func() {
		sent, fault, err := t.produce()
		produced <- result{sent, fault, err}
	}()
	torn, err := t.consume(&c)
	if err != nil {
		t.dev.Disable() // ends produce
	}
	r := <-produced
	if err == nil {
		err = r.err
	}
	if err != nil {
		return err
	}
	if r.fault != "" {
		c.fail("%s", r.fault)
	}
	if torn > 0 {
		c.Found = fmt.Sprintf("%d of %d rounds were published before their payload; %s", torn, c.Rounds, c.Found)
	}
	if c.Pass {
		c.Found = fmt.Sprintf("payload before word: %d checked, %d sent", c.Rounds, r.sent)
	}
	t.ended(c)
	return nil
}

// produce sends rounds for the time of a phase. fault says why it ended sooner.
func (t *test) produce() (sent uint64, fault string, err error) {
	var buf [slotTail]byte
	end, slots := time.Now().Add(t.o.Time), uint64(t.area/slotSize)
	for round := uint64(1); round%16 != 0 || time.Now().Before(end); round++ {
		if round%16 == 0 && !t.dev.LinkUp() {
			return sent, "", errLost
		}
		underWay := slots
		if round/stretch%2 == 1 {
			underWay = 1
		}
		if err = t.checkedTo(round, underWay); err == errLate {
			fault = fmt.Sprintf("round %d, or the word that it was checked, did not arrive within %v", sent, t.o.Late)
			break
		}
		if err != nil {
			return sent, "", err
		}
		fill(buf[:], t.own, round)
		slot, n := t.slot(round), size(round)
		t.out.Store64(slot+slotTail, round^t.own)
		t.out.Write(slot, buf[:n/2])
		t.out.Write(slot+n/2, buf[n/2:n])
		t.publish(roundAt, round)
		sent = round
	}
	t.publish(endAt, sent+1)
	return sent, fault, nil
}

// checkedTo waits until so few rounds are under way that one more may be sent.
func (t *test) checkedTo(round, underWay uint64) error {
	if round <= underWay {
		return nil
	}
	return t.await(t.o.Late, func() bool { return t.word(checkedAt)-(round-underWay) < underWay })
}

// consume checks the peer's rounds, and returns how many were published before their payload.
func (t *test) consume(c *Check) (torn uint64, err error) {
	var buf [slotTail]byte
	slots := uint64(t.area / slotSize)
	for next := uint64(1); ; c.Rounds = next - 1 {
		var round, end uint64
		var past bool
		err := t.listen(func() bool {
			past = t.past() // before the words, behind which it was published
			end = t.word(endAt)
			round = t.word(roundAt)
			return round >= next || end != 0 || past
		})
		switch {
		case err == errLate:
			c.fail("neither round %d nor the end of the rounds arrived", next)
			return torn, nil
		case err != nil:
			return torn, err
		case round < next && end == next:
			return torn, nil
		case round < next:
			c.fail("round %d did not arrive, and what was published behind it did", next)
			return torn, nil
		case round-next >= slots:
			return torn, fmt.Errorf("the other side broke the protocol: it has published round %d, and round %d is not checked", round, next)
		}
		for ; next <= round; next++ {
			fill(buf[:], t.peer, next)
			what, bad := t.differs(t.slot(next), buf[:size(next)])
			if !bad && ntb.Load64(t.in, t.slot(next)+slotTail) != next^t.peer {
				what, bad = "the word behind the payload is another one", true
			}
			if bad {
				torn++
				c.fail("in round %d %s", next, what)
			}
		}
		t.publish(checkedAt, round)
	}
}
