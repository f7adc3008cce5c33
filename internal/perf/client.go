package perf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// client is this side of one measured connection. One goroutine uses it at a time.
// Only conn.Close may be called by another one.
type client struct {
	conn net.Conn // immutable
	out  []byte   // one message, the largest size of the plan
	in   []byte   // messages that come back
	head [commandSize]byte
	ack  [replySize]byte

	// How many messages make a batch, learned from earlier batches.
	roundTrips, writes pacer
	// Times of single round trips. Its capacity is fixed before the measurement.
	samples []time.Duration
	// sleeps returns how often the connection has had an end asleep; nil where that is not counted.
	sleeps func() uint64
}

func newClient(conn net.Conn, largest, samples int) *client {
	return &client{
		conn:    conn,
		out:     bytes.Repeat([]byte{1}, largest), // pages that were never written are all the same one
		in:      make([]byte, largest),
		samples: make([]time.Duration, 0, samples),
	}
}

func (c *client) send(cmd command) error {
	cmd.put(&c.head)
	_, err := c.conn.Write(c.head[:])
	return err
}

func (c *client) receive() (uint64, error) {
	if _, err := io.ReadFull(c.conn, c.ack[:]); err != nil {
		return 0, noEOF(err)
	}
	return parseReply(&c.ack)
}

// hello checks that the other end is of the same version, and has it check the same.
func (c *client) hello() error {
	if err := c.send(command{op: opHello, count: version}); err != nil {
		return err
	}
	v, err := c.receive()
	if err != nil {
		return err
	}
	return checkVersion(v)
}

// verify sends total pseudo-random bytes and receives as many at the same time.
// Both ends check every byte.
func (c *client) verify(seed, total uint64) error {
	if err := c.send(command{op: opVerify, count: total, seed: seed}); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- writePattern(c.conn, newPattern(seed, toServer), total) }()
	bad, err := checkPattern(c.conn, newPattern(seed, toClient), total)
	if err != nil {
		c.conn.Close() // wakes the writer
	}
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	// A wrong byte explains whatever else went wrong after it.
	if bad != nil {
		return fmt.Errorf("wrong data from the server: %w", bad)
	}
	if err != nil {
		return noEOF(err)
	}
	at, err := c.receive()
	if err == nil && at != allGood {
		err = fmt.Errorf("wrong data at the server: byte %d differs", at)
	}
	return err
}

// echo makes n round trips. It does not allocate.
func (c *client) echo(size, n int) error {
	if err := c.send(command{op: opEcho, size: uint32(size), count: uint64(n)}); err != nil {
		return err
	}
	out, in, r := c.out[:size], c.in[:size], io.Reader(c.conn)
	for range n {
		if _, err := c.conn.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(r, in); err != nil {
			return noEOF(err)
		}
	}
	return nil
}

// sample is echo that also appends the time of each round trip to c.samples, as
// long as there is capacity. The time includes one reading of the clock.
func (c *client) sample(size, n int) error {
	n = min(n, cap(c.samples)-len(c.samples))
	if err := c.send(command{op: opEcho, size: uint32(size), count: uint64(n)}); err != nil {
		return err
	}
	out, in, r := c.out[:size], c.in[:size], io.Reader(c.conn)
	last := time.Now()
	for range n {
		if _, err := c.conn.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(r, in); err != nil {
			return noEOF(err)
		}
		now := time.Now()
		c.samples = append(c.samples, now.Sub(last))
		last = now
	}
	return nil
}

// sink writes n messages and waits until the receiver acknowledges them. It does
// not allocate.
func (c *client) sink(size, n int) error {
	if err := c.send(command{op: opSink, size: uint32(size), count: uint64(n)}); err != nil {
		return err
	}
	out := c.out[:size]
	for range n {
		if _, err := c.conn.Write(out); err != nil {
			return err
		}
	}
	received, err := c.receive()
	if err == nil && received != uint64(n)*uint64(size) {
		err = errors.New("the server received another number of bytes than were sent")
	}
	return err
}
