package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
)

var (
	all     = flag.Bool("all", false, "print all tests, not only those that differ")
	verbose = flag.Bool("v", false, "print what go test prints, to standard error")
	repeat  = flag.Int("repeat", 5, "how often a test that differs is run again")
	timeout = flag.Duration("timeout", 10*time.Minute, "the most that the tests of a package may take")
	short   = flag.Bool("short", false, "run tests with -short")
)

func main() {
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() == 0 {
		usage()
		os.Exit(2)
	}
	status := 0
	for _, s := range chosen(flag.Args()) {
		s.short = s.short || *short
		ok, err := compare(s)
		if err != nil {
			fmt.Fprintf(os.Stderr, "others: %s: %v\n", s.name, err)
		}
		if !ok {
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

// chosen are the suites that arguments name.
func chosen(args []string) []suite {
	if args[0] == "all" && len(args) == 1 {
		return suites
	}
	var named []suite
	for _, arg := range args {
		for _, s := range suites {
			if s.name == arg {
				named = append(named, s)
			}
		}
	}
	if len(named) == len(args) {
		return named
	}
	s := suite{name: args[0], target: args[0], packages: args[1:]}
	if len(s.packages) == 0 {
		s.packages = []string{"./..."}
	}
	return []suite{s}
}

// compare runs a suite and prints what came out. It reports whether all is well.
func compare(s suite) (ok bool, err error) {
	tmp, err := os.MkdirTemp("", "ntbnet-others-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	fabricName := fmt.Sprintf("others-%d-%08x", os.Getpid(), rand.Uint32())
	defer func() { err = errors.Join(err, fabric.Remove(fabricName)) }()
	src, err := prepare(s.target, tmp)
	if err != nil {
		return false, err
	}
	log := io.Discard
	if *verbose {
		log = os.Stderr
	}
	t, err := newTransports(src, fabricName, *timeout, s.short, log)
	if err != nil {
		return false, err
	}
	start := time.Now()
	var c *comparison
	if s.interop {
		c, err = interop(t)
	} else {
		c, err = tests(t, s)
	}
	if err != nil {
		return false, err
	}
	conns, err := t.connections()
	if err != nil {
		return false, err
	}
	for _, r := range c.rows {
		if r.bad {
			fmt.Printf("--- %s over SDP:\n%s\n", r.test, r.output)
		}
	}
	c.print(os.Stdout, *all)
	fmt.Printf("%s: TCP: %s; SDP: %s; %d connections by SDP, %d by TCP, %d listeners; %v\n",
		s.name, totals(c.tcp), totals(c.sdp), conns["sdp"], conns["tcp"], conns["listen"], time.Since(start).Round(time.Second))
	if conns["sdp"] == 0 {
		return false, errors.New("no connection took SDP")
	}
	return !c.bad(), nil
}

// tests compares the tests of a suite.
func tests(t *transports, s suite) (*comparison, error) {
	src := t.sdp.src
	list, err := src.list(s.packages)
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
	tcp, err := t.tcp.run(s.packages)
	if err != nil {
		return nil, err
	}
	sdp, err := t.sdp.run(s.packages)
	if err != nil {
		return nil, err
	}
	return judge(t, tcp, sdp, *repeat)
}
