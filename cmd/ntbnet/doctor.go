package main

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/ntbnet/ntbnet/internal/doctor"
	"github.com/ntbnet/ntbnet/internal/spec"
)

// examine finds out whether a process here would listen and dial by SDP.
func examine(ctx context.Context, c *command, args []string, out io.Writer) error {
	fs := c.flagSet(out, "")
	name := fs.String("fabric", "", "`FABRIC`, as SDP_FABRIC names it (default SDP_FABRIC, or else "+spec.File+", or else shm:default)")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	if err := parse(fs, args, out); err != nil {
		return err
	}
	if *name != "" {
		if _, err := spec.Parse(*name); err != nil {
			return badInputf("--fabric: %w", err)
		}
	}
	report := doctor.Run(ctx, *name)
	write := report.Table
	if *asJSON {
		write = func(out io.Writer) error { return writeJSON(out, report) }
	}
	if err := write(plain{out}); err != nil {
		return err
	}
	if !report.Works {
		return errors.New("a dial or a listen does not work by SDP in fabric " + cmp.Or(report.Fabric, "of "+spec.File))
	}
	return nil
}
