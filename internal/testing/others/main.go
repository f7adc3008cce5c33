package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
)

// options are the options of the command line.
type options struct {
	all     bool          // print all tests, not only those that differ
	repeat  int           // how often a test that differs is run again
	timeout time.Duration // limit for the tests of a package
	short   bool          // go test -short
	only    string        // go test -run
	log     io.Writer     // receives what go test prints
}

// exitInterrupted is the exit status after an interrupt.
const exitInterrupted = 130

func main() {
	o := options{log: io.Discard}
	flag.BoolVar(&o.all, "all", false, "print all tests, not only those that differ")
	flag.IntVar(&o.repeat, "repeat", 5, "how often a test that differs is run again")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute, "the most that the tests of a package may take")
	flag.BoolVar(&o.short, "short", false, "run tests with -short")
	flag.StringVar(&o.only, "run", "", "run only tests that match, as go test does")
	verbose := flag.Bool("v", false, "print what go test prints, to standard error")
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() == 0 {
		usage()
		os.Exit(2)
	}
	if *verbose {
		o.log = os.Stderr
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt ends this process at once
	wanted, err := chosen(flag.Args())
	if err != nil {
		fmt.Fprintf(os.Stderr, "others: %v (see others -h)\n", err)
		os.Exit(2)
	}
	status := 0
	for _, s := range wanted {
		start := time.Now()
		c, err := compare(ctx, s, o)
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, ctx.Err()) {
				fmt.Fprintf(os.Stderr, "others: %s: %v\n", s.name, err)
			}
			fmt.Fprintln(os.Stderr, "others: interrupted")
			os.Exit(exitInterrupted)
		}
		if c != nil {
			c.print(os.Stdout, o.all)
			fmt.Printf("%s: %s; %v\n", s.name, c.totals(), time.Since(start).Round(time.Second))
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "others: %s: %v\n", s.name, err)
		}
		if err != nil || c.bad() {
			status = 1
		}
	}
	os.Exit(status)
}

func usage() {
	w := flag.CommandLine.Output()
	fmt.Fprintln(w, "usage: others [flags] all | SUITE... | std PACKAGE... | MODULE@VERSION [PACKAGE...] | DIRECTORY [PACKAGE...]")
	for _, s := range suites {
		fmt.Fprintf(w, "  %-9s %s %v\n", s.name, s.target, s.packages)
	}
	flag.PrintDefaults()
}

// chosen returns the suites that the arguments name.
func chosen(args []string) ([]suite, error) {
	if args[0] == "all" && len(args) == 1 {
		return suites, nil
	}
	var named []suite
	unknown := ""
	for _, arg := range args {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == arg })
		if i >= 0 {
			named = append(named, suites[i])
		} else if unknown == "" {
			unknown = arg
		}
	}
	if unknown == "" {
		return named, nil
	}
	if len(named) > 0 || !isTarget(args[0]) {
		return nil, fmt.Errorf("%q is no suite, no MODULE@VERSION and no directory", unknown)
	}
	s := suite{name: args[0], target: args[0], packages: args[1:]}
	if len(s.packages) == 0 {
		s.packages = []string{"./..."}
	}
	return []suite{s}, nil
}

// isTarget reports whether arg may be where packages are: std, MODULE@VERSION or a
// directory.
func isTarget(arg string) bool {
	info, err := os.Stat(arg)
	return arg == std || strings.Contains(arg, "@") || err == nil && info.IsDir()
}

// compare runs a suite. Together with an error it may return a comparison, in which
// something is not as it should be.
func compare(ctx context.Context, s suite, o options) (c *comparison, err error) {
	tmp, err := os.MkdirTemp("", "ntbnet-others-")
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("others-%d-%08x", os.Getpid(), rand.Uint32())
	defer func() {
		err = errors.Join(err, clean(func() error { return spec.Remove(name) }), clean(func() error { return os.RemoveAll(tmp) }))
	}()
	o.only = cmp.Or(o.only, s.only)
	src, err := prepare(ctx, s, tmp)
	if err != nil {
		return nil, err
	}
	t, err := newTransports(src, name, o)
	if err != nil {
		return nil, err
	}
	if s.interop {
		c, err = interop(ctx, t)
	} else {
		c, err = tests(ctx, t, s.packages, o.repeat)
	}
	if err != nil {
		return nil, err
	}
	if c.connections, err = t.connections(); err != nil {
		return nil, err
	}
	if !c.tcp.any() {
		return c, fmt.Errorf("nothing passed over TCP\n%s", c.tcp.output())
	}
	if c.connections["sdp"] == 0 {
		return c, errors.New("no connection took SDP")
	}
	return c, nil
}

// endTimeout is how long the last processes of a suite may take to end.
const endTimeout = 60 * time.Second

// clean calls remove until it succeeds: the last processes of a suite may still be at work there.
func clean(remove func() error) error {
	for end := time.Now().Add(endTimeout); ; time.Sleep(10 * time.Millisecond) {
		if err := remove(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// tests compares the tests of packages.
func tests(ctx context.Context, t *transports, patterns []string, repeat int) (*comparison, error) {
	src := t.sdp.src
	list, err := src.list(ctx, patterns)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if err := src.patchPackage(p); err != nil {
			return nil, err
		}
	}
	if err := src.writeOverlay(); err != nil {
		return nil, err
	}
	tcp, err := t.tcp.run(ctx, patterns)
	if err != nil {
		return nil, err
	}
	sdp, err := t.sdp.run(ctx, patterns)
	if err != nil {
		return nil, err
	}
	return judge(ctx, t, tcp, sdp, repeat)
}
