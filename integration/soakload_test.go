//go:build linux

package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// soakLoads are the kinds of load. All but "http" begin a connection with a byte
// that says what the other side has to do.
var soakLoads = []string{"bulk", "churn", "half", "late", "full", "http"}

// newLoad returns a function that runs the load once, for the caller to call again
// and again, and one that ends it.
func newLoad(name string, n *soakNode, target soakTarget) (load func() error, done func()) {
	nothing := func() {}
	switch name {
	case "bulk":
		return func() error { return n.with(target, 'b', n.bulk) }, nothing
	case "churn":
		return func() error { return n.churn(target) }, nothing
	case "half":
		return func() error { return n.with(target, 'h', n.half) }, nothing
	case "late":
		return func() error { return n.with(target, 'l', n.late) }, nothing
	case "full":
		return func() error { return n.with(target, 'f', n.full) }, nothing
	case "http":
		return n.web(target)
	}
	panic(name)
}

// with runs f over a new connection.
func (n *soakNode) with(target soakTarget, kind byte, f func(c *sdp.Conn) error) error {
	c, err := n.dial(target)
	if err != nil {
		return err
	}
	if _, err = c.Write([]byte{kind}); err == nil {
		err = f(c)
	}
	return errors.Join(err, c.Close())
}

// bulk moves up to 4 MB both ways.
func (n *soakNode) bulk(c *sdp.Conn) error {
	return (&flow{c: c, seed: rand.N(maxFlows), n: 1 + rand.Int64N(4_000_000)}).dialling()
}

// churn opens some connections one after the other.
func (n *soakNode) churn(target soakTarget) error {
	for i := range 16 {
		if i%8 == 0 { // without a byte
			c, err := n.dial(target)
			if err != nil {
				return err
			}
			if rand.N(2) == 0 {
				c.SetLinger(0)
			}
			if err := c.Close(); err != nil {
				return err
			}
		}
		if err := n.once(target); err != nil {
			return err
		}
	}
	return nil
}

// once sends a few bytes over a new connection, and gets them back.
func (n *soakNode) once(target soakTarget) error {
	return n.with(target, 'c', func(c *sdp.Conn) error {
		sent := newStream(rand.N(streamPeriod)).next(16)
		if _, err := c.Write(sent); err != nil {
			return err
		}
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if !bytes.Equal(got, sent) {
			return errWrongBytes
		}
		return nil
	})
}

// half ends its direction, and only then gets the answer.
func (n *soakNode) half(c *sdp.Conn) error {
	size := rand.Int64N(200_000)
	if _, err := io.CopyN(c, newStream(1), size); err != nil {
		return err
	}
	return wantCount(c, size)
}

// wantCount ends a direction. It expects the number of bytes that arrived there,
// and then the end of the other direction.
func wantCount(c *sdp.Conn, size int64) error {
	if err := c.CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if len(answer) != 8 {
		return fmt.Errorf("an answer of %d bytes: %w", len(answer), io.ErrUnexpectedEOF)
	}
	if got := int64(binary.LittleEndian.Uint64(answer)); got != size {
		return fmt.Errorf("%d bytes came of %d: %w", got, size, errWrongBytes)
	}
	return nil
}

// late reads from a connection without data, until its deadline.
func (n *soakNode) late(c *sdp.Conn) error {
	for range 3 {
		if err := c.SetReadDeadline(time.Now().Add(rand.N(20 * time.Millisecond))); err != nil {
			return err
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("read with a deadline where nothing comes: %w", errors.Join(err, errNotLate))
		}
	}
	if err := c.SetReadDeadline(time.Now().Add(soakLimit)); err != nil {
		return err
	}
	return wantCount(c, 0)
}

var errNotLate = errors.New("not a timeout")

// full writes to a peer that does not read for a while, with deadlines that end in
// the middle, and counts what was taken.
func (n *soakNode) full(c *sdp.Conn) error {
	const size = 3_000_000
	s, sent := newStream(1), 0
	limit := time.Now().Add(soakLimit)
	for sent < size {
		if err := c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			return err
		}
		was := *s
		k, err := c.Write(s.next(min(100_000, size-sent)))
		was.next(k)
		*s = was
		sent += k
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(limit)) {
			return err
		}
	}
	if err := c.SetWriteDeadline(limit); err != nil {
		return err
	}
	return wantCount(c, size)
}

// web gets and puts by HTTP, several times over one connection.
func (n *soakNode) web(target soakTarget) (load func() error, done func()) {
	transport := &http.Transport{DialContext: (&sdp.Dialer{Fabric: n.fabric}).DialContext}
	client := &http.Client{Transport: transport, Timeout: n.limit(target)}
	sizes := []int64{0, 100, 5000, 70_000, 1_000_000}
	return func() error {
		if rand.N(10) == 0 {
			transport.CloseIdleConnections()
		}
		size := sizes[rand.N(len(sizes))]
		got, err := client.Get(fmt.Sprintf("http://%s/stream?n=%d", target.web, size))
		if err != nil {
			return err
		}
		err = newStream(1).readExactly(got.Body, size)
		if err := errors.Join(err, got.Body.Close()); err != nil {
			return err
		}
		sum := sha256.New()
		body := io.TeeReader(io.LimitReader(newStream(2), size), sum)
		put, err := http.NewRequest("PUT", "http://"+target.web+"/sum", body)
		if err != nil {
			return err
		}
		if got, err = client.Do(put); err != nil {
			return err
		}
		answer, err := io.ReadAll(got.Body)
		if err := errors.Join(err, got.Body.Close()); err != nil {
			return err
		}
		if want := fmt.Sprintf("%d %x <nil>", size, sum.Sum(nil)); string(answer) != want {
			return fmt.Errorf("answer %q, want %q: %w", answer, want, errWrongBytes)
		}
		return nil
	}, transport.CloseIdleConnections
}

// serve serves the loads of other processes. It returns a function that ends it.
func (n *soakNode) serve(port string) (end func(), err error) {
	ln, err := n.fabric.Listen("sdp", ":"+port)
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				// The dialling side reports errors. Here only wrong bytes count.
				if err := answer(c.(*sdp.Conn)); err != nil && neverAllowed(err) {
					n.note("serve", soakTarget{address: c.RemoteAddr().String()}, 0, err)
				}
				c.Close()
			})
		}
	})
	stop := func() { ln.Close(); all.Wait() }
	if port != "7" {
		return stop, nil // another process of the host serves HTTP
	}
	web, err := n.fabric.Listen("sdp", ":80")
	if err != nil {
		stop()
		return nil, err
	}
	server := &http.Server{Handler: payloadHandler()}
	all.Go(func() { server.Serve(web) }) // always an error
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), soakLimit)
		defer cancel()
		server.Shutdown(ctx)
		stop()
	}, nil
}

func answer(c *sdp.Conn) error {
	var kind [1]byte
	if _, err := io.ReadFull(c, kind[:]); err != nil {
		return err
	}
	switch kind[0] {
	case 'b':
		return (&flow{c: c}).accepted()
	case 'c':
		_, err := io.CopyN(c, c, 16)
		return err
	case 'f':
		time.Sleep(200 * time.Millisecond) // the queue becomes full
	case 'h', 'l':
	default:
		return errWrongBytes
	}
	size, err := io.Copy(struct{ io.Writer }{newStream(1)}, c)
	if err != nil {
		return err
	}
	_, err = c.Write(binary.LittleEndian.AppendUint64(nil, uint64(size)))
	return err
}
