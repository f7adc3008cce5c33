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

// hostCall is a call of Host, Dialer or Listener, or of the default Host, which has the
// same fabric.
type hostCall struct {
	name string
	do   func(h *sdp.Host, target string, e *expected) error
}

var hostCalls = []hostCall{
	{"Dial with a limit", func(h *sdp.Host, target string, e *expected) error {
		return e.dialled((&sdp.Dialer{Host: h, Timeout: matrixLimit}).Dial("sdp", target))
	}},
	{"Dial with a deadline", func(h *sdp.Host, target string, e *expected) error {
		return e.dialled((&sdp.Dialer{Host: h, Deadline: soon()}).Dial("sdp", target))
	}},
	{"DialContext with a limit", func(h *sdp.Host, target string, e *expected) error {
		ctx, cancel := context.WithTimeout(context.Background(), matrixLimit)
		defer cancel()
		return e.dialled(h.DialContext(ctx, "sdp", target))
	}},
	{"DialContext cancelled", func(h *sdp.Host, target string, e *expected) error {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(matrixLimit/10, cancel)
		defer cancel()
		c, err := h.DialContext(ctx, "sdp", target)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		if c == nil {
			return verdict(err, e.dial)
		}
		return c.Close()
	}},
	{"DialTimeout of the default Host", func(_ *sdp.Host, target string, e *expected) error {
		return e.dialled(sdp.DialTimeout("sdp", target, matrixLimit))
	}},
	{"Listen, Accept with a deadline, Close", func(h *sdp.Host, _ string, _ *expected) error {
		ln, err := h.Listen("sdp", ":0")
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
	{"Listener.Close wakes Accept", func(h *sdp.Host, _ string, _ *expected) error {
		ln, err := h.Listen("sdp", ":0")
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
	{"Listen of the default Host", func(*sdp.Host, string, *expected) error {
		ln, err := sdp.Listen("sdp", ":0")
		if err != nil {
			return err
		}
		return ln.Close()
	}},
	{"Dial of a port where nobody listens", func(h *sdp.Host, _ string, _ *expected) error {
		return must(second((&sdp.Dialer{Host: h, Timeout: matrixPatience}).Dial("sdp", "localhost:1")), []error{syscall.ECONNREFUSED})
	}},
	{"Host.Stats", func(h *sdp.Host, _ string, _ *expected) error { h.Stats(); return nil }},
	{"DefaultStats", func(*sdp.Host, string, *expected) error { sdp.DefaultStats(); return nil }},
	{"Host.ResolveAddr", func(h *sdp.Host, target string, _ *expected) error {
		_, err := h.ResolveAddr(context.Background(), target)
		return err
	}},
	{"Host.Crossovers", func(h *sdp.Host, _ string, _ *expected) error { h.Crossovers(); return nil }},
	{"Host.OwnsLinks", func(h *sdp.Host, _ string, _ *expected) error { h.OwnsLinks(); return nil }},
	{"Open of the same fabric", func(*sdp.Host, string, *expected) error {
		h, err := sdp.Open("")
		if err != nil {
			return err
		}
		h.Stats()
		return h.Close()
	}},
	{"Open of another fabric", func(*sdp.Host, string, *expected) error {
		h, err := sdp.Open("mem:another")
		if err != nil {
			return err
		}
		defer h.Close()
		return listenOnce(h)
	}},
}

// dialled judges a dial. It closes a connection that was made.
func (e *expected) dialled(c net.Conn, err error) error {
	if err == nil {
		return c.Close()
	}
	return verdict(err, e.dial)
}
