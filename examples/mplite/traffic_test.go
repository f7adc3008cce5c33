package mplite

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Faults of what was received.
var (
	errContents  = errors.New("a receive has other contents than its message")
	errOvertaken = errors.New("a message was overtaken")
)

// receipt is a receive and what it got. They are kept in the order of calls.
type receipt struct {
	from, tag int // arguments of the receive
	buf       []byte
	r         *Request
	got       Last
	seq       int
}

// letter returns message number seq to a PE: a number of 4 bytes, and contents that
// depend on it.
func letter(size, source, seq int) []byte {
	b := filled(size, source*31+seq)
	binary.LittleEndian.PutUint32(b, uint32(seq))
	return b
}

// read waits for the receive and checks its contents.
func (x *receipt) read() (err error) {
	if x.got, err = x.r.Wait(context.Background()); err != nil {
		return err
	}
	if x.got.Size < 4 || x.got.Size > len(x.buf) {
		return fmt.Errorf("%w: size %d", errContents, x.got.Size)
	}
	x.seq = int(binary.LittleEndian.Uint32(x.buf))
	if !bytes.Equal(x.buf[:x.got.Size], letter(x.got.Size, x.got.Source, x.seq)) {
		return fmt.Errorf("%w: number %d of PE %d", errContents, x.seq, x.got.Source)
	}
	return nil
}

func (x *receipt) takes(source, tag int) bool {
	return (x.from == AnySource || x.from == source) && (x.tag == AnyTag || x.tag == tag)
}

// checkOrder compares what a PE has received with the rules. Each receive got what it
// asked for, each message came once, and no message was overtaken. sent[source] has
// the tags and sizes of the messages, in order.
func checkOrder(all []*receipt, sent [][]Last) error {
	seen := map[[2]int]int{}
	for i, x := range all {
		source := x.got.Source
		if x.seq >= len(sent[source]) || sent[source][x.seq] != x.got || !x.takes(source, x.got.Tag) {
			return fmt.Errorf("%w: receive %d from %d with tag %d got %+v, number %d", errContents, i, x.from, x.tag, x.got, x.seq)
		}
		if first, ok := seen[[2]int{source, x.seq}]; ok {
			return fmt.Errorf("%w: receives %d and %d got the same", errContents, first, i)
		}
		seen[[2]int{source, x.seq}] = i
		for k, later := range all[i+1:] {
			if later.got.Source == source && later.seq < x.seq && x.takes(source, later.got.Tag) {
				return fmt.Errorf("%w: receive %d got number %d of PE %d; number %d, which it takes too, went to receive %d",
					errOvertaken, i, x.seq, source, later.seq, i+1+k)
			}
		}
	}
	return nil
}

// plan is what one PE sends to another, and how the other receives it.
type plan struct {
	sent []Last // Source is the sender
	from []int  // source argument of each receive
	tags []int
}

// tags below anyTags are received from any source.
const anyTags = 10

// makePlan makes the same plan on all PEs. Either all receives of a pair take any
// tag, or they take the tags that are sent; so none is left without a message.
func makePlan(rng *rand.Rand, source, count int, sizes []int) plan {
	var p plan
	any := rng.IntN(3) == 0
	for range count {
		tag, from := rng.IntN(3), source
		if !any && rng.IntN(3) == 0 {
			tag, from = anyTags+rng.IntN(2), AnySource
		}
		p.sent = append(p.sent, Last{source, tag, sizes[rng.IntN(len(sizes))]})
		if any {
			tag = AnyTag
		}
		p.from, p.tags = append(p.from, from), append(p.tags, tag)
	}
	rng.Shuffle(count, func(i, j int) {
		p.from[i], p.from[j] = p.from[j], p.from[i]
		p.tags[i], p.tags[j] = p.tags[j], p.tags[i]
	})
	return p
}

// traffic has all PEs send messages to all, in an order by seed.
func traffic(c *Comm, seed uint64, count int, sizes []int) error {
	n, me, largest := c.NumPEs(), c.PE(), sizes[len(sizes)-1]
	rng := rand.New(rand.NewPCG(seed, 1))
	to := make([]plan, n)     // what this PE sends
	sent := make([][]Last, n) // what it receives
	var ops []func() error
	var receives []*receipt
	var wait []*Request
	store, err := symmetric(c, n*count*largest)
	if err != nil {
		return err
	}
	mine := rand.New(rand.NewPCG(seed, uint64(me)+2))
	for source := range n {
		for target := range n {
			p := makePlan(rng, source, count, sizes)
			if source == me {
				to[target] = p
			}
			if target != me {
				continue
			}
			sent[source] = p.sent
			for i := range p.tags {
				ops = append(ops, func() error {
					x := &receipt{from: p.from[i], tag: p.tags[i], buf: make([]byte, largest)}
					if mine.IntN(3) > 0 {
						x.buf, store = store[:largest], store[largest:]
					}
					x.r = ARecv(c, x.buf, x.from, x.tag)
					receives = append(receives, x)
					return nil
				})
			}
		}
	}
	next := make([]int, n)
	for target := range n {
		for range count {
			ops = append(ops, func() error {
				seq := next[target]
				next[target]++
				m := to[target].sent[seq]
				b := letter(m.Size, me, seq)
				// The default options leave room for all of them.
				if c.opts.Slots == defaultSlots && mine.IntN(2) == 0 {
					return Send(context.Background(), c, b, target, m.Tag)
				}
				wait = append(wait, ASend(c, b, target, m.Tag))
				return nil
			})
		}
	}
	mine.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	for _, op := range ops {
		if err := op(); err != nil {
			return err
		}
		if mine.IntN(4) == 0 && len(receives) > 0 {
			if _, err := receives[mine.IntN(len(receives))].r.Test(); err != nil {
				return err
			}
		}
	}
	for _, r := range wait {
		if _, err := r.Wait(context.Background()); err != nil {
			return err
		}
	}
	for i, x := range receives {
		if err := x.read(); err != nil {
			return fmt.Errorf("receive %d from %d with tag %d: %w", i, x.from, x.tag, err)
		}
	}
	return checkOrder(receives, sent)
}

func TestRandomTrafficArrivesOnceAndInOrder(t *testing.T) {
	for name, o := range map[string]Options{"normal": {}, "no buffers": {Slots: 1, Buffer: 64, Piece: 1000}, "few": {Slots: 3, Buffer: 5000}} {
		t.Run(name, func(t *testing.T) {
			each(t, pes(o), o, func(t *testing.T, c *Comm) {
				for range 3 {
					seed := sameSeed(t, c)
					require.NoError(t, traffic(c, seed, 30, []int{4, 8, 9, 24, 500, 4096}), "seed %d", seed)
				}
			})
		})
	}
}

// sameSeed returns the same seed on all PEs.
func sameSeed(t require.TestingT, c *Comm) uint64 {
	var b [1]uint64
	if c.PE() == 0 {
		b[0] = rand.Uint64()
		for pe := 1; pe < c.NumPEs(); pe++ {
			require.NoError(t, Send(context.Background(), c, b[:], pe, 99))
		}
		return b[0]
	}
	_, err := Recv(context.Background(), c, b[:], 0, 99)
	require.NoError(t, err)
	return b[0]
}
