//go:build linux

package integration

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// fabricCall is a call of Fabric, Dialer or Listener, or of the default Fabric, which has the
// same fabric.
type fabricCall struct {
	name string
	do   func(f *sdp.Fabric, target string, e *expected) error
}

var fabricCalls = []fabricCall{
	{"Dial with a limit", func(f *sdp.Fabric, target string, e *expected) error {
		return e.dialled((&sdp.Dialer{Fabric: f, Timeout: matrixLimit}).Dial("sdp", target))
	}},
	{"Dial with a deadline", func(f *sdp.Fabric, target string, e *expected) error {
		return e.dialled((&sdp.Dialer{Fabric: f, Deadline: soon()}).Dial("sdp", target))
	}},
	{"DialContext with a limit", func(f *sdp.Fabric, target string, e *expected) error {
		ctx, cancel := context.WithTimeout(context.Background(), matrixLimit)
		defer cancel()
		return e.dialled(f.DialContext(ctx, "sdp", target))
	}},
	{"DialContext cancelled", func(f *sdp.Fabric, target string, e *expected) error {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(matrixLimit/10, cancel)
		defer cancel()
		c, err := f.DialContext(ctx, "sdp", target)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		if c == nil {
			return verdict(err, e.dial)
		}
		return c.Close()
	}},
	{"DialTimeout of the default Fabric", func(_ *sdp.Fabric, target string, e *expected) error {
		return e.dialled(sdp.DialTimeout("sdp", target, matrixLimit))
	}},
	{"Listen, Accept with a deadline, Close", func(f *sdp.Fabric, _ string, _ *expected) error {
		ln, err := f.Listen("sdp", ":0")
		if err != nil {
			return err
		}
		if err := ln.(*sdp.Listener).SetDeadline(soon()); err != nil {
			return err
		}
		if err := must(second(ln.Accept()), late); err != nil {
			return err
		}
		return ln.Close()
	}},
	{"Listener.Close wakes Accept", func(f *sdp.Fabric, _ string, _ *expected) error {
		ln, err := f.Listen("sdp", ":0")
		if err != nil {
			return err
		}
		accepted := make(chan error, 1)
		go func() { accepted <- second(ln.Accept()) }()
		time.Sleep(time.Millisecond)
		if err := ln.Close(); err != nil {
			return err
		}
		return must(<-accepted, closed)
	}},
	{"Listen of the default Fabric", func(*sdp.Fabric, string, *expected) error {
		ln, err := sdp.Listen("sdp", ":0")
		if err != nil {
			return err
		}
		return ln.Close()
	}},
	{"Dial of a port where nobody listens", func(f *sdp.Fabric, _ string, _ *expected) error {
		return must(second((&sdp.Dialer{Fabric: f, Timeout: matrixTimeout}).Dial("sdp", "localhost:1")), []error{syscall.ECONNREFUSED})
	}},
	{"Fabric.Stats", func(f *sdp.Fabric, _ string, _ *expected) error { f.Stats(); return nil }},
	{"DefaultStats", func(*sdp.Fabric, string, *expected) error { sdp.DefaultStats(); return nil }},
	{"Fabric.ResolveAddr", func(f *sdp.Fabric, target string, _ *expected) error {
		_, err := f.ResolveAddr(context.Background(), target)
		return err
	}},
	{"Fabric.Crossovers", func(f *sdp.Fabric, _ string, _ *expected) error { f.Crossovers(); return nil }},
	{"Fabric.OwnsLinks", func(f *sdp.Fabric, _ string, _ *expected) error { f.OwnsLinks(); return nil }},
	{"Open of the same fabric", func(*sdp.Fabric, string, *expected) error {
		f, err := sdp.Open("")
		if err != nil {
			return err
		}
		f.Stats()
		return f.Close()
	}},
	{"Open of another fabric", func(*sdp.Fabric, string, *expected) error {
		f, err := sdp.Open("mem:another")
		if err != nil {
			return err
		}
		defer f.Close()
		return listenOnce(f)
	}},
}

// dialled judges a dial. It closes a connection that was made.
func (e *expected) dialled(c net.Conn, err error) error {
	if err == nil {
		return c.Close()
	}
	return verdict(err, e.dial)
}
