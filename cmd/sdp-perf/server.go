package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// runServer serves one endpoint until the user interrupts it. That is its normal
// end.
func runServer(ctx context.Context, args []string, out io.Writer) error {
	fs := newFlagSet("server")
	where := fs.String("listen", "", "where to serve: `NET://ADDRESS`; port 0 picks one")
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	e, err := endpointFlag("listen", *where)
	if err != nil {
		return err
	}
	ln, err := listen(ctx, e)
	if err != nil {
		return badInput{err}
	}
	srv := perf.NewServer()
	srv.Refused = func(err error) { fmt.Fprintln(os.Stderr, "sdp-perf: a client was refused:", err) }
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	defer srv.Close()
	if _, err := fmt.Fprintf(out, "listening on %s\n", whereItListens(ln, e)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
