//go:build linux

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// connCall is a call, or a few, on a connection of its own. do returns what is wrong.
type connCall struct {
	name string
	do   func(c *sdp.Conn, e *expected) error
}

func soon() time.Time { return time.Now().Add(matrixLimit) }

// much is more than all buffers on the way hold.
const much = 64 << 20

// connCalls are the calls of Conn. In state "bulk", other goroutines write to and read
// from the same connection.
var connCalls = []connCall{
	{"Read", func(c *sdp.Conn, e *expected) error {
		c.SetReadDeadline(soon())
		return e.ended(second(c.Read(make([]byte, 100))))
	}},
	{"Read and Write, one deadline", func(c *sdp.Conn, e *expected) error {
		c.SetDeadline(soon())
		var all sync.WaitGroup
		var read, write error
		all.Go(func() { _, read = c.Read(make([]byte, 100)) })
		all.Go(func() { _, write = c.Write(make([]byte, much)) })
		all.Wait()
		return errors.Join(e.ended(read), e.much(write))
	}},
	{"Write", func(c *sdp.Conn, e *expected) error {
		c.SetWriteDeadline(soon())
		return e.much(second(c.Write(make([]byte, much))))
	}},
	{"Write of a byte", func(c *sdp.Conn, e *expected) error {
		c.SetWriteDeadline(soon())
		return verdict(second(c.Write([]byte{1})), e.write)
	}},
	{"Peek and Discard", func(c *sdp.Conn, e *expected) error {
		c.SetReadDeadline(soon())
		b, err := c.Peek()
		if err == nil {
			c.Discard(len(b))
		}
		return e.ended(err)
	}},
	{"Reserve and Commit", func(c *sdp.Conn, e *expected) error {
		c.SetWriteDeadline(soon())
		for n := 0; n < much; {
			b, err := c.Reserve(64 << 10)
			if err != nil {
				return verdict(err, e.write)
			}
			c.Commit(len(b))
			n += len(b)
		}
		return e.much(nil)
	}},
	{"ReadFrom bytes", func(c *sdp.Conn, e *expected) error {
		c.SetWriteDeadline(soon())
		return e.much(second(c.ReadFrom(bytes.NewReader(make([]byte, much)))))
	}},
	{"ReadFrom a reader", func(c *sdp.Conn, e *expected) error {
		c.SetWriteDeadline(soon())
		return e.much(second(c.ReadFrom(io.LimitReader(newStream(1), much))))
	}},
	{"WriteTo a writer", func(c *sdp.Conn, e *expected) error {
		c.SetReadDeadline(soon())
		return e.drained(second(c.WriteTo(io.Discard)))
	}},
	{"WriteTo a file", func(c *sdp.Conn, e *expected) error {
		f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		c.SetReadDeadline(soon())
		return e.drained(second(c.WriteTo(f)))
	}},
	{"CloseRead", func(c *sdp.Conn, e *expected) error {
		if err := c.CloseRead(); err != nil {
			return verdict(err, e.over)
		}
		c.SetWriteDeadline(soon())
		if _, err := io.Copy(io.Discard, c); err != nil { // to io.EOF, at once
			return verdict(err, []error{syscall.ECONNRESET})
		}
		return verdict(second(c.Write([]byte{1})), e.write)
	}},
	{"CloseWrite", func(c *sdp.Conn, e *expected) error {
		if err := c.CloseWrite(); err != nil {
			return verdict(err, e.over)
		}
		c.SetDeadline(soon())
		if err := must(second(c.Write([]byte{1})), e.shut()); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 100))
		if err == io.EOF { // the connection was only cut off, or another process was stopped
			return nil
		}
		return verdict(err, e.read)
	}},
	{"Close", func(c *sdp.Conn, e *expected) error { return closes(c) }},
	{"Abort", func(c *sdp.Conn, e *expected) error {
		if err := c.SetLinger(0); err != nil {
			return err
		}
		return closes(c)
	}},
	{"Close wakes", func(c *sdp.Conn, e *expected) error {
		var all sync.WaitGroup
		var read, write error
		all.Go(func() { _, read = io.Copy(io.Discard, c) })
		all.Go(func() { _, write = c.Write(make([]byte, much)) })
		time.Sleep(time.Millisecond) // mostly they wait by then
		err := closes(c)
		all.Wait()
		gone := append(closed, syscall.ECONNRESET, syscall.EPIPE)
		if read == nil {
			read = e.drained(nil)
		} else {
			read = verdict(read, gone)
		}
		return errors.Join(err, read, verdict(write, gone))
	}},
	{"Close during leases", func(c *sdp.Conn, e *expected) error {
		c.SetDeadline(soon())
		in, readErr := c.Peek()
		out, writeErr := c.Reserve(100)
		err := c.Close()
		if readErr == nil {
			c.Discard(len(in))
		}
		if writeErr == nil {
			c.Commit(len(out))
		}
		return errors.Join(err, e.ended(readErr), verdict(writeErr, e.write))
	}},
	{"Commit after a deadline", func(c *sdp.Conn, e *expected) error {
		c.SetDeadline(soon())
		out, err := c.Reserve(100)
		if err != nil {
			return verdict(err, e.write)
		}
		c.SetDeadline(time.Unix(1, 0))
		c.Commit(len(out))
		return nil
	}},
	{"SetDeadline wakes", func(c *sdp.Conn, e *expected) error {
		var all sync.WaitGroup
		var read, write error
		all.Go(func() { _, read = io.Copy(io.Discard, c) })
		all.Go(func() { _, write = c.Write(make([]byte, much)) })
		time.Sleep(time.Millisecond)
		if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
			return err
		}
		all.Wait()
		return errors.Join(e.drained(read), verdict(write, e.write))
	}},
	{"Set and get", func(c *sdp.Conn, e *expected) error {
		c.Stats()
		if err := wantSDP(c); err != nil {
			return err
		}
		return errors.Join(c.SetReadBuffer(1<<20), c.SetWriteBuffer(1<<20), c.SetLinger(1), c.SetDeadline(soon()), c.SetReadDeadline(soon()),
			c.SetWriteDeadline(soon()))
	}},
}

// closes closes a connection, which must then refuse all other calls.
func closes(c *sdp.Conn) error {
	if err := c.Close(); err != nil {
		return err
	}
	for name, err := range map[string]error{
		"Close": c.Close(), "CloseRead": c.CloseRead(), "CloseWrite": c.CloseWrite(), "SetDeadline": c.SetDeadline(soon()),
		"Read": second(c.Read(make([]byte, 1))), "Write": second(c.Write(make([]byte, 1))),
	} {
		if err := must(err, closed); err != nil {
			return fmt.Errorf("%s of a closed connection: %w", name, err)
		}
	}
	c.Stats()
	return nil
}
