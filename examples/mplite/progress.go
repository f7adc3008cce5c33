package mplite

import (
	"context"

	"github.com/ntbnet/ntbnet/shmem"
)

// A PE does its part for others' messages in its own calls. There is no goroutine
// for it.

// hear reads what the other PE has written: first how far it has taken, then its
// replies. The other PE writes them in the reverse order. So for every message that
// counts as taken, this PE knows which posted receive it met, if any.
func (l *link) hear() {
	c := l.c
	drained, taken := l.word(wordDrained), l.word(wordTaken)
	c.pause()
	replies, arrived := l.word(wordReplies), l.word(wordHeaders)
	if drained-l.drained > l.wrote-l.drained || taken-l.taken > l.sent-l.taken ||
		replies-l.gotten > l.replies.slots || arrived-l.got > l.in.slots {
		c.bad(l, entry{})
		return
	}
	l.drained, l.taken, l.arrived = drained, taken, arrived
	for l.gotten != replies && c.err == nil {
		e := l.replies.read(l.gotten)
		l.gotten++
		l.answer(e)
	}
}

// advance handles what other PEs have written, one header of each PE in turn, until
// look returns true. A nil look never does. With force it takes headers without a
// receive even where there are many already.
func (c *Comm) advance(force bool, look func() bool) {
	for i := range c.links {
		c.links[i].hear()
	}
	for more := true; more; {
		more = false
		first := c.first
		for i := range c.links {
			l := &c.links[(first+i)%len(c.links)]
			if c.err != nil || look != nil && look() {
				more = false
				break
			}
			if l.got == l.arrived || !force && len(l.unexpected) >= maxUnexpected {
				continue
			}
			c.take(l)
			more = true
		}
	}
	if c.late {
		c.late = false
		if c.postable > 0 {
			c.post(0)
		}
	}
	c.pause()
	for i := range c.links {
		c.links[i].flush()
		c.links[i].credit()
	}
}

// work does all that can be done now.
func (c *Comm) work(force bool, look func() bool) {
	c.advance(force, look)
	for i := range c.links {
		c.links[i].push(true)
	}
	if err := c.ctx.Err(); err != nil {
		c.fail(err)
	}
}

// until waits until look returns true. The caller has begun a call.
func (c *Comm) until(ctx context.Context, force bool, look func() bool) error {
	for {
		if c.err != nil {
			return c.err
		}
		c.work(force, look)
		if look() {
			return nil
		}
		if c.err != nil {
			return c.err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.step != nil {
			c.step()
			continue
		}
		if _, err := shmem.WaitUntilAnyVector(ctx, c.words, nil, shmem.Ne, c.heard); err != nil {
			return err
		}
	}
}

// poll is until that does not wait.
func (c *Comm) poll(force bool, look func() bool) error {
	if c.err == nil {
		c.work(force, look)
	}
	if c.err != nil || look() {
		return c.err
	}
	return c.w.Err()
}

// pause lets another PE come in between, in tests.
func (c *Comm) pause() {
	if c.step != nil {
		c.step()
	}
}
