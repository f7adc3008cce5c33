package collective

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Steps and messages, of which collective calls are made. Each team has a work area at
// the same place of all heaps. It consists of lines of 64 bytes, each written by one
// PE, and of the stage, for copies of ordinary memory. The lines that PE src of the team
// writes begin at src*576; in the work area of active sets, src is a number in the job.
// Offsets from there:
//
//	0x00  8  steps: how many PE src has taken towards this PE
//	0x08  8  taken: how many of this PE's messages PE src has taken
//	0x40 64  eight slots for messages, 64 bytes each
//	   0x00 48  the contents
//	   0x30  8  taken, as above
//	   0x38  8  the message's number, from 1
//
// A step is a store to the count, after the data that was put before it. A message is
// up to 48 bytes in one line with their number, so that a waiter gets both with one
// transfer between processors.
//
// Both sides of a pair take the same steps and send the same messages in the same
// order, since all PEs make the same collective calls in the same order. So a number
// alone identifies a step or message. Numbers never go back, and are never reset.
// Every step and message is awaited in the call in which it is sent, so none is left
// over.
//
// The slot of message i is used again by message i+8, once the reader has acknowledged
// message i. It does so with a message of its own, or separately after four. A sender
// may have to wait for that. The reader is then in an earlier call than the sender, or
// has not reached the same point of this one, and does not wait for anything that the
// sender has not sent. So the PE that is furthest behind can always go on.

const (
	slots        = 8
	pairBytes    = (1 + slots) * symheap.LineBytes
	takenAt      = 8
	messageBytes = 48
	slotTakenAt  = messageBytes
	slotNumberAt = messageBytes + 8
	messageWords = messageBytes / 8
	// stageBytes is the size of a stage. Elements of all types fit without a rest.
	stageBytes = 64 << 10
)

// partner has the counts of this PE's steps and messages with another PE.
type partner struct {
	from uintptr // offset of the lines that the other PE writes; immutable

	// The mu of calls guards the following.
	sent, seen uint64 // steps to the other PE, and from it
	put, taken uint64 // messages to it, and how many of them it has acknowledged
	got, told  uint64 // messages from it, and how many of them were acknowledged
}

// linesBytes returns the size of the lines of a team of n PEs, in whole pages.
func linesBytes(n int) uintptr {
	return (uintptr(n)*pairBytes + symheap.PageBytes - 1) &^ (symheap.PageBytes - 1)
}

// AreaBytes returns the size of a team's work area, in a job of n PEs: the lines and the
// stage.
func AreaBytes(n int) uintptr { return linesBytes(n) + stageBytes }

// partners returns the partners of n PEs, whose lines are in a work area.
func partners(area uintptr, n int) []partner {
	all := make([]partner, n)
	for pe := range all {
		all[pe].from = area + uintptr(pe)*pairBytes
	}
	return all
}

// step takes a step towards PE dst of the team. If dst sees the step, it also sees
// what was put there before.
func (t *Team) step(dst int) {
	q := t.pairs[dst]
	q.sent++
	t.ctx.TellWaiter(t.peers[dst], t.pairs[t.me].from, q.sent)
}

// await waits for the next step of PE src.
func (t *Team) await(ctx context.Context, src int) error {
	q := t.pairs[src]
	q.seen++
	return t.reaches(ctx, q.from, q.seen)
}

// reaches waits until a word here is want or more.
func (t *Team) reaches(ctx context.Context, off uintptr, want uint64) error {
	p := symheap.Word8(t.space.Heap().Base, off)
	if atomic.LoadUint64(p) >= want {
		return nil
	}
	return t.space.Wait(ctx, func() bool { return atomic.LoadUint64(p) >= want })
}

// stepAll takes a step towards each other PE, beginning with the next one.
func (t *Team) stepAll() {
	for i := 1; i < len(t.peers); i++ {
		t.step(t.next(i))
	}
}

// awaitAll waits for a step of each other PE.
func (t *Team) awaitAll(ctx context.Context) error {
	for i := 1; i < len(t.peers); i++ {
		if err := t.await(ctx, t.next(i)); err != nil {
			return err
		}
	}
	return nil
}

// trade steps to each other PE, calls f for each that has stepped here, and steps to it again. It waits
// until all have done so.
func (t *Team) trade(ctx context.Context, f func(pe int)) error {
	t.stepAll()
	for i := 1; i < len(t.peers); i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		f(pe)
		t.step(pe)
	}
	return t.awaitAll(ctx)
}

// next returns the PE that is i further around the team.
func (t *Team) next(i int) int {
	if i += t.me; i >= len(t.peers) {
		i -= len(t.peers)
	}
	return i
}

// send sends a message of up to messageBytes to PE dst.
func (t *Team) send(ctx context.Context, dst int, v []byte) error {
	q := t.pairs[dst]
	if q.put-q.taken >= slots {
		if err := t.room(ctx, dst); err != nil {
			return err
		}
	}
	q.put++
	q.told = q.got
	off := t.pairs[t.me].from + symheap.LineBytes + uintptr(q.put%slots)*symheap.LineBytes
	p := t.peers[dst]
	if base := p.Base(); base != nil {
		copy(symheap.Bytes(base, off, messageBytes), v)
		symheap.Store8(base, off+slotTakenAt, q.got)
		symheap.StoreFence()
		symheap.Store8(base, off+slotNumberAt, q.put)
		p.Stored()
		return nil
	}
	line := bytesOf(t.line[:])
	copy(line, v)
	t.line[slotTakenAt/8] = q.got
	t.ctx.PutBytes(p, off, line)
	t.ctx.TellWaiter(p, off+slotNumberAt, q.put)
	return nil
}

// sendAll sends the same to each other PE.
func (t *Team) sendAll(ctx context.Context, v []byte) error {
	for i := 1; i < len(t.peers); i++ {
		if err := t.send(ctx, t.next(i), v); err != nil {
			return err
		}
	}
	return nil
}

var errTaken = errors.New("shmem: a PE has taken messages that were not sent")

// room waits until there is a slot for one more message to PE dst.
func (t *Team) room(ctx context.Context, dst int) error {
	q := t.pairs[dst]
	off := q.from + takenAt
	if err := t.reaches(ctx, off, q.put-slots+1); err != nil {
		return err
	}
	return q.takes(atomic.LoadUint64(symheap.Word8(t.space.Heap().Base, off)))
}

// takes notes how many messages the other PE has acknowledged.
func (q *partner) takes(taken uint64) error {
	if taken > q.put {
		return errTaken
	}
	q.taken = max(q.taken, taken)
	return nil
}

// receive waits for the next message of PE src, and returns it. It is valid until
// took is called.
func (t *Team) receive(ctx context.Context, src, n int) ([]byte, error) {
	q := t.pairs[src]
	off := q.from + symheap.LineBytes + uintptr((q.got+1)%slots)*symheap.LineBytes
	if err := t.reaches(ctx, off+slotNumberAt, q.got+1); err != nil {
		return nil, err
	}
	base := t.space.Heap().Base
	if err := q.takes(symheap.Load8(base, off+slotTakenAt)); err != nil {
		return nil, err
	}
	return symheap.Bytes(base, off, uintptr(n)), nil
}

// took gives back the slot of the message from PE src.
func (t *Team) took(src int) {
	q := t.pairs[src]
	q.got++
	if q.got-q.told >= slots/2 {
		q.told = q.got
		// The PE may never wait for it, so Quiet does: it must not arrive in the area of a later team.
		t.ctx.Tell(t.peers[src], t.pairs[t.me].from+takenAt, q.got)
	}
}

// Words are what PEs exchange by Agree.
type Words [messageWords]uint64

// Agree exchanges what each PE of the team passes, and calls each with it, in the order of
// the team.
func (t *Team) Agree(ctx context.Context, mine Words, each func(pe int, w Words)) error {
	if err := t.sendAll(ctx, bytesOf(mine[:])); err != nil {
		return err
	}
	for pe := range t.peers {
		w := mine
		if pe != t.me {
			m, err := t.receive(ctx, pe, messageBytes)
			if err != nil {
				return err
			}
			copy(bytesOf(w[:]), m)
			t.took(pe)
		}
		each(pe, w)
	}
	return t.ctx.Err()
}
