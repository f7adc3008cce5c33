package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/selftest"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/spf13/pflag"
)

const selftestHelp = `
Each of the two hosts runs it, and waits for the other. END is this host's end
of the wire, as in SDP_FABRIC, which counts if there is none; "ntb" if that is
not set either:
  ntb                    the only bridge of the kernel (module ntb_cdev)
  ntb:0000:b1:00.0       that one
  ivshmem:0000:00:03.0, ivshmem:/run/lab.sock, file:/PATH   with --node 1 or 2
No other process may have the wire meanwhile.

Checks: payload arrives before its word, and the word before its doorbell; a
word leaves at once (times there and back); how fast each kind of store is; no
doorbell is lost (times from the ring to the answer by a word); an end of the
link shows, and leaves nothing behind. To see what a lost link does, cut the
cable or kill one side meanwhile: the other one must end within seconds.

Exit status: 0 if all checks passed at both ends; 1 if one failed, the other
side did not come, or the link was lost; 2 if the arguments are wrong, or the
wire cannot be used or is in use.
`

// options are the parsed command line.
type options struct {
	test selftest.Options
	end  string
	node int
	json string
}

func (c *command) selftestOptions(args []string, stdout io.Writer) (*options, error) {
	var o options
	fs := c.flagSet(stdout, selftestHelp)
	fs.DurationVar(&o.test.Time, "time", 3*time.Second, "`T` of each phase, of which there are four; 1ms to 1h")
	fs.DurationVar(&o.test.Wait, "wait", time.Minute, "`T` to wait for the other side")
	fs.DurationVar(&o.test.Late, "late", 2*time.Second, "`T` after which what has not arrived counts as lost")
	fs.IntVar(&o.node, "node", 0, "`N`: 1 at the one end, 2 at the other; the kernel's bridges know it")
	fs.StringVar(&o.json, "json", "", "write a report to `FILE`, to be kept or sent in; - for stdout")
	if err := flags.Parse(fs, args, stdout); err != nil {
		return nil, err
	}
	switch rest := fs.Args(); {
	case len(rest) > 1:
		return nil, fmt.Errorf("%q: want one end of a wire", rest[1])
	case len(rest) == 1:
		o.end = rest[0]
	default:
		if o.end = os.Getenv(spec.EnvFabric); o.end == "" {
			o.end = "ntb"
		}
	}
	if o.test.Time < time.Millisecond || o.test.Time > selftest.MaxTime {
		return nil, fmt.Errorf("--time %v: want 1ms to 1h", o.test.Time)
	}
	if _, err := os.Stat(filepath.Dir(o.json)); err != nil { // which is . for "" and -
		return nil, fmt.Errorf("--json: %w", err)
	}
	if o.test.Wait <= 0 || o.test.Late <= 0 {
		return nil, errors.New("--wait and --late: want times above 0")
	}
	return &o, nil
}

// selfTest tests a wire.
func selfTest(ctx context.Context, c *command, args []string, stdout, stderr io.Writer) int {
	o, err := c.selftestOptions(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return statusOK
	}
	if err != nil {
		return fail(stderr, badInput{err})
	}
	logger := log.New(stderr, "ntbnet: ", log.Lmsgprefix)
	a, found, err := spec.AttachEnd(o.end, o.node)
	if err != nil {
		logger.Printf("cannot use %s: %v", o.end, err)
		return statusUsage
	}
	return test(ctx, o, a, found, stdout, stderr, logger)
}

// test tests the wire of an end, and shows what it finds.
func test(ctx context.Context, o *options, a ntb.Attachment, found string, stdout, stderr io.Writer, logger *log.Logger) int {
	table, progress := stdout, onTerminal(stderr)
	if o.json == "-" {
		table = io.Discard
	}
	o.test.Phase = func(name string) { fmt.Fprint(progress, eraseLine, found, ": ", name, " …") }
	o.test.Each = func(c selftest.Check) {
		verdict := "pass"
		if !c.Pass {
			verdict = "FAIL"
		}
		fmt.Fprint(progress, eraseLine)
		fmt.Fprintf(table, "%s  %-16s  %s\n", verdict, c.Name, c.Found)
	}
	report, err := selftest.Run(ctx, a, o.test)
	fmt.Fprint(progress, eraseLine)
	if e := a.Close(); e != nil {
		logger.Printf("%s: %v", found, e)
	}
	if ctx.Err() != nil {
		err, report.Error = context.Cause(ctx), "stopped by a signal"
	}
	if err != nil {
		logger.Printf("%s: %s", found, report.Error)
	}
	if e := write(o.json, found, report, stdout); e != nil {
		logger.Printf("cannot write the report: %v", e)
		return statusFailed
	}
	switch {
	case errors.Is(err, ntb.ErrInUse), report.Backend == "" && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded):
		return statusUsage // there was no session, and not for want of a peer
	case !report.Pass:
		return statusFailed
	}
	return statusOK
}

// write writes the report as JSON, if a file is named.
func write(file, found string, r *selftest.Report, stdout io.Writer) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(struct {
		End string `json:"end"`
		PCI string `json:"pci,omitempty"` // vendor and device of the bridge, as in /sys
		*selftest.Report
	}{found, pci(found), r}, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if file == "-" {
		_, err = stdout.Write(text)
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
