package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/sdp"
)

// runCompare runs the command without a name: it starts everything by itself.
func runCompare(ctx context.Context, args []string, out io.Writer) error {
	var (
		fs         = newFlagSet("")
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
	if err := checkFabric(transports); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	child, err := startChild(ctx, dir, services(dir, commandService, transports))
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

// checkFabric checks, before anything is started, that this system has SDP and that
// the fabric which SDP_FABRIC names can be joined.
func checkFabric(transports []string) error {
	if !slices.Contains(transports, sdp.Network) {
		return nil
	}
	f, err := sdp.Open("")
	if err != nil {
		return badInputf("%w", err)
	}
	return f.Close()
}
