package limits

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"
)

var (
	errStopped = errors.New("stopped")
	errOneCPU  = errors.New("the limits need two processors: both sides spin")
)

// Meter is the side that measures. One goroutine uses it at a time. Only Stop may
// be called by another one.
type Meter struct {
	party
	commands io.Writer
}

// NewMeter returns a meter with a helper that reads commands and has mapped the
// same memory.
func NewMeter(m *Memory, commands io.Writer) *Meter {
	return &Meter{party: party{m: m}, commands: commands}
}

// Stop ends a measurement that is under way, and all later ones, with an error. It
// is called when the helper is dead, or the result is not wanted any more.
func (m *Meter) Stop() { m.stop.Store(true) }

// begin sets the words to zero while the helper does not read them, and sends it
// the command.
func (m *Meter) begin(c command) error {
	if runtime.NumCPU() < 2 {
		return errOneCPU
	}
	for _, off := range []int{ping, ping + wordAt, pong, pong + wordAt, head, tail} {
		m.m.publish(off, 0)
	}
	if _, err := fmt.Fprintln(m.commands, c); err != nil {
		return fmt.Errorf("tell the second process: %w", err)
	}
	return nil
}

// Message is what goes to and fro.
type Message int

// The messages. Both sides copy all but the word from and to memory of their own.
const (
	Word       Message = iota // a word alone on its cache line
	FilledLine                // a word and the 56 bytes before it
	TwoLines                  // a word and the 64 bytes after it
)

// CacheLine sends a message to and fro, and returns microseconds for one round trip.
func (m *Meter) CacheLine(message Message, rounds int) (float64, error) {
	warm := uint64(rounds / 8)
	c := command{kind: lines, count: warm + uint64(rounds)}
	do := m.askLines
	switch message {
	case FilledLine:
		c.kind, do = filled, m.askFilled
	case TwoLines:
		c.kind, do = double, m.askDouble
	}
	if err := m.begin(c); err != nil {
		return 0, err
	}
	if !do(1, warm) {
		return 0, errStopped
	}
	start := time.Now()
	if !do(warm+1, c.count) {
		return 0, errStopped
	}
	return float64(time.Since(start)) / float64(rounds) / 1e3, nil
}

func (m *Meter) askLines(from, to uint64) bool {
	for i := from; i <= to; i++ {
		m.m.publish(ping, i)
		if !m.await(pong, i) {
			return false
		}
	}
	return true
}

func (m *Meter) askFilled(from, to uint64) bool {
	var private [payload]byte
	for i := from; i <= to; i++ {
		copy(m.m.b[ping:ping+payload], private[:])
		m.m.publish(ping+wordAt, i)
		if !m.await(pong+wordAt, i) {
			return false
		}
		copy(private[:], m.m.b[pong:pong+payload])
	}
	return true
}

func (m *Meter) askDouble(from, to uint64) bool {
	var private [twoLines]byte
	for i := from; i <= to; i++ {
		copy(m.m.b[ping+payloadAt:ping+payloadAt+twoLines], private[:])
		m.m.publish(ping, i)
		if !m.await(pong, i) {
			return false
		}
		copy(private[:], m.m.b[pong+payloadAt:pong+payloadAt+twoLines])
	}
	return true
}

// Copies sends at least total bytes through a queue, in pieces that both sides
// copy: from the meter's memory into the queue, and from there into the helper's
// memory. The pieces are parts of messages of 64 KiB; a larger piece is a message.
// All sizes are in bytes. queue and piece are powers of two. A piece is not
// larger than the queue, and the queue is at most 8 MiB. It returns GB/s (10^9
// bytes), counted when the helper has copied. If streamed is true, the first copy is
// made by non-temporal stores.
func (m *Meter) Copies(queue, piece, total int, streamed bool) (float64, error) {
	n := uint64(max(total/piece, 1))
	warm := max(n/8, 1)
	c := command{copies, queue, piece, warm + n}
	if err := m.begin(c); err != nil {
		return 0, err
	}
	private := newMessage(piece)
	if !m.produce(c, private, streamed, 0, warm) {
		return 0, errStopped
	}
	start := time.Now()
	if !m.produce(c, private, streamed, warm, warm+n) {
		return 0, errStopped
	}
	return float64(n) * float64(piece) / float64(time.Since(start)), nil
}

// produce puts the pieces [from, to) into the queue and waits until they are
// consumed. It returns false if it was stopped first.
func (m *Meter) produce(c command, private message, streamed bool, from, to uint64) bool {
	size := uint64(c.piece)
	pos, end := from*size, to*size
	room := pos + uint64(c.queue) // then everything before is consumed
	for ; pos < end; pos += size {
		if next := pos + size; next > room {
			consumed, ok := m.awaitAtLeast(tail, next-uint64(c.queue))
			if !ok {
				return false
			}
			room = consumed + uint64(c.queue)
		}
		m.m.fill(pos, private.at(pos, c.piece), c.queue, streamed)
		m.m.publish(head, pos+size)
	}
	return m.await(tail, end)
}
