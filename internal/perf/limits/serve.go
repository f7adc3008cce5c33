package limits

import (
	"bufio"
	"io"
	"sync/atomic"
)

// Serve is the helper's side. It carries out what the meter's commands ask for,
// until they end. Their end also ends a measurement that is under way.
func Serve(m *Memory, commands io.Reader) error {
	p := party{m: m}
	var (
		work = make(chan command)
		read = make(chan error, 1)
	)
	go func() {
		defer close(work)
		read <- readCommands(commands, work)
		p.stop.Store(true)
	}()
	for c := range work {
		switch c.kind {
		case lines:
			p.answerLines(c.count)
		case filled:
			p.answerFilled(c.count)
		case double:
			p.answerDouble(c.count)
		case copies:
			p.consume(c)
		}
	}
	return <-read
}

func readCommands(r io.Reader, work chan<- command) error {
	in := bufio.NewScanner(r)
	for in.Scan() {
		c, err := parseCommand(in.Text())
		if err != nil {
			return err
		}
		work <- c
	}
	return in.Err()
}

// party is one of the two processes.
type party struct {
	m    *Memory
	stop atomic.Bool // set by another goroutine to end waits
}

// await spins until the word at off is want. It returns false if it was stopped
// first.
func (p *party) await(off int, want uint64) bool {
	for i := uint(1); p.m.load(off) != want; i++ {
		if i&0xfff == 0 && p.stop.Load() {
			return false
		}
	}
	return true
}

// awaitAtLeast is await for a word that counts up. It returns the word.
func (p *party) awaitAtLeast(off int, want uint64) (uint64, bool) {
	for i := uint(1); ; i++ {
		if v := p.m.load(off); v >= want {
			return v, true
		}
		if i&0xfff == 0 && p.stop.Load() {
			return 0, false
		}
	}
}

func (p *party) answerLines(count uint64) {
	for i := uint64(1); i <= count; i++ {
		if !p.await(ping, i) {
			return
		}
		p.m.publish(pong, i)
	}
}

func (p *party) answerFilled(count uint64) {
	var private [payload]byte
	for i := uint64(1); i <= count; i++ {
		if !p.await(ping+wordAt, i) {
			return
		}
		copy(private[:], p.m.b[ping:ping+payload])
		copy(p.m.b[pong:pong+payload], private[:])
		p.m.publish(pong+wordAt, i)
	}
}

func (p *party) answerDouble(count uint64) {
	var private [twoLines]byte
	for i := uint64(1); i <= count; i++ {
		if !p.await(ping, i) {
			return
		}
		copy(private[:], p.m.b[ping+payloadAt:ping+payloadAt+twoLines])
		copy(p.m.b[pong+payloadAt:pong+payloadAt+twoLines], private[:])
		p.m.publish(pong, i)
	}
}

func (p *party) consume(c command) {
	private := newMessage(c.piece)
	var pos, have uint64
	for range c.count {
		if next := pos + uint64(c.piece); have < next {
			var ok bool
			if have, ok = p.awaitAtLeast(head, next); !ok {
				return
			}
		}
		copy(private.at(pos, c.piece), p.m.piece(pos, c.piece, c.queue))
		pos += uint64(c.piece)
		p.m.publish(tail, pos)
	}
}
