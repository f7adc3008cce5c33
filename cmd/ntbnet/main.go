package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1
	statusUsage  = 2
)

// badInput is an error that the user can correct on the command line.
type badInput struct{ error }

func (e badInput) Unwrap() error { return e.error }

func badInputf(format string, args ...any) error { return badInput{fmt.Errorf(format, args...)} }

// command is a command, chosen by the first argument.
type command struct {
	name    string
	args    string // follow the flags in the help
	summary string
	// run runs it, and returns the exit status. It reports its errors by fail.
	run func(ctx context.Context, c *command, args []string, stdout, stderr io.Writer) int
}

// commands returns all commands.
func commands() []command {
	return []command{
		{"ls", "", "show fabrics, processes, ports and connections here", show(list)},
		{"doctor", "", "find out whether SDP works here, and what to do if not", show(examine)},
		{"topology", "", "show nodes, links and routes of a ring, line or mesh", show(topology)},
		{"top", "", "show connections, and what goes over them a second", show(top)},
		{"selftest", "[END]", "test a wire between two hosts, run at both", selfTest},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		for _, c := range commands() {
			if c.name == args[0] {
				return c.run(ctx, &c, args[1:], stdout, stderr)
			}
		}
	}
	fs := flags.New("ntbnet", stdout, usageHead(), usageTail)
	err := flags.Parse(fs, args, stdout)
	if err == nil {
		err = errors.New("want a command: " + strings.Join(names(), ", "))
	}
	if fs.NArg() > 0 {
		err = fmt.Errorf("unknown command %q: want %s", fs.Arg(0), strings.Join(names(), ", "))
	}
	return fail(stderr, badInput{err})
}

func names() (all []string) {
	for _, c := range commands() {
		all = append(all, c.name)
	}
	return all
}

// fail reports an error, and returns the exit status that it has.
func fail(stderr io.Writer, err error) int {
	var bad badInput
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return statusOK
	case errors.As(err, &bad):
		log.New(stderr, "ntbnet: ", log.Lmsgprefix).Printf("%s (ntbnet --help tells more)", oneLine(err.Error()))
		return statusUsage
	}
	log.New(stderr, "ntbnet: ", log.Lmsgprefix).Print(oneLine(err.Error()))
	return statusFailed
}

// oneLine makes one line of a text, whatever a lower layer or another process puts into it.
func oneLine(text string) string { return printable(strings.Join(strings.Fields(text), " ")) }

// printable replaces what a terminal may obey, but for the ends of lines.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// plain writes what is printable. Other processes have said some of it.
type plain struct{ io.Writer }

func (p plain) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.Writer, printable(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func usageHead() string {
	head := "ntbnet shows what runs over bridges and between processes, and tests a wire.\n\nUsage: ntbnet COMMAND [flags]\n\n"
	for _, c := range commands() {
		head += fmt.Sprintf("  ntbnet %-10s %s\n", c.name, c.summary)
	}
	return head + "\nFlags:\n"
}

const usageTail = `
"ntbnet COMMAND --help" has the flags of a command.

Exit status: 0; 1 when something failed, or does not work; 2 for bad input.
`

// flagSet returns the flag set of the command, whose help has more at its end.
func (c *command) flagSet(stdout io.Writer, more string) *pflag.FlagSet {
	usage := strings.TrimSpace("ntbnet " + c.name + " [flags] " + c.args)
	return flags.New("ntbnet", stdout, fmt.Sprintf("ntbnet %s: %s\n\nUsage: %s\n\nFlags:\n", c.name, c.summary, usage), more)
}

// parse parses flags. There are no other arguments.
func parse(fs *pflag.FlagSet, args []string, stdout io.Writer) error {
	err := flags.Parse(fs, args, stdout)
	switch {
	case err != nil && !errors.Is(err, pflag.ErrHelp):
		return badInput{err}
	case err == nil && fs.NArg() > 0:
		return badInputf("%q: unexpected argument", fs.Arg(0))
	}
	return err
}

// show makes a command of a function that prints.
func show(print func(ctx context.Context, c *command, args []string, out io.Writer) error) func(context.Context, *command, []string, io.Writer, io.Writer) int {
	return func(ctx context.Context, c *command, args []string, stdout, stderr io.Writer) int {
		return fail(stderr, print(ctx, c, args, stdout))
	}
}

func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(plain{out}) // JSON leaves characters that turn the direction of a line
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
