package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// runCompare is the command without a name: everything by itself.
func runCompare(ctx context.Context, args []string, out io.Writer) error {
	var (
		fs         = newFlagSet()
		flags      measureFlags
		transports []string
	)
	fs.StringSliceVar(&transports, "transports", perf.Networks, "what to measure")
	flags.register(fs)
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	plan, err := flags.plan()
	if err != nil {
		return err
	}
	if err := checkTransports(transports); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	child, err := startChild(ctx, dir, transports)
	if err != nil {
		return err
	}
	plan.Targets, plan.Dial = child.endpoints, dial
	err = measure(ctx, plan, flags, out)
	if state := child.stop(); err != nil && !state.Success() {
		err = fmt.Errorf("%w (the second process: %v)", err, state)
	}
	return err
}

// childEndpoints is where the child is to listen: free ports, and a socket in
// dir.
func childEndpoints(dir string, transports []string) []perf.Endpoint {
	addresses := map[string]string{
		"sdp":  "localhost:0",
		"tcp":  "127.0.0.1:0",
		"unix": filepath.Join(dir, "socket"),
	}
	endpoints := make([]perf.Endpoint, len(transports))
	for i, t := range transports {
		endpoints[i] = perf.Endpoint{Network: t, Address: addresses[t]}
	}
	return endpoints
}
