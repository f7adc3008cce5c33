package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// runClient measures a server that the user has started.
func runClient(ctx context.Context, args []string, out io.Writer) error {
	var flags measureFlags
	fs := newFlagSet("client")
	where := fs.String("connect", "", "the server: `NET://ADDRESS`")
	flags.register(fs)
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	e, err := endpointFlag("connect", *where)
	if err != nil {
		return err
	}
	plan, err := flags.plan()
	if err != nil {
		return err
	}
	plan.Targets, plan.Dial = []perf.Endpoint{e}, dialGiven
	return measure(ctx, plan, flags, out)
}

// dialGiven dials an address that the user has given. If that fails, the address is bad input.
func dialGiven(ctx context.Context, e perf.Endpoint) (net.Conn, error) {
	c, err := dial(ctx, e)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, syscall.ECONNREFUSED), e.Network == "unix" && errors.Is(err, fs.ErrNotExist):
		return nil, badInputf("%w (start one there: sdp-perf server --listen %s)", err, e)
	default:
		return nil, badInputf("%w", err)
	}
}
