package main

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/perf/doctor"
	"github.com/ntbnet/ntbnet/internal/perf/list"
)

// runDoctor finds out whether a process here would listen and dial by SDP.
func runDoctor(ctx context.Context, args []string, out io.Writer) error {
	fs := newFlagSet("doctor")
	name := fs.String("fabric", "", "`FABRIC`, as SDP_FABRIC names it (default SDP_FABRIC, or else "+fabric.File+", or else shm:default)")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	if *name != "" {
		if _, err := fabric.ParseSpec(*name); err != nil {
			return badInputf("--fabric: %w", err)
		}
	}
	report := doctor.Run(ctx, *name)
	write := report.Table
	if *asJSON {
		write = func(out io.Writer) error { return writeJSON(out, report) }
	}
	if err := write(out); err != nil {
		return err
	}
	if !report.Works {
		return errors.New("a dial or a listen does not work by SDP in fabric " + cmp.Or(report.Fabric, "of "+fabric.File))
	}
	return nil
}

// runList shows fabrics of this machine and who is in them.
func runList(ctx context.Context, args []string, out io.Writer) error {
	fs := newFlagSet("ls")
	name := fs.String("fabric", "", "one `FABRIC` only, such as shm:NAME or ring:/PATH (default all of this user, and the directory of SDP_FABRIC or "+fabric.File+")")
	remove := fs.Bool("remove", false, "remove what is dead: sockets of processes that have ended, directories of this user's fabrics without processes")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	if *name != "" {
		if err := fabric.CheckDirectory(*name); err != nil {
			return badInputf("--fabric: %w", err)
		}
	}
	report, err := list.Read(ctx, *name)
	if err != nil {
		return err
	}
	var removeErr error
	if *remove {
		removeErr = report.Remove()
	}
	write := report.Table
	if *asJSON {
		write = func(out io.Writer) error { return writeJSON(out, report) }
	}
	return errors.Join(write(out), removeErr, report.Failed())
}
