package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1 // a listener failed
	statusUsage  = 2 // it could not start
)

func main() {
	// If the reader of the log ends, or the terminal is closed, connections must not end.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, append(countersSignals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)...)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, signals))
}

// run runs the program, and returns its exit status.
func run(args []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	logger := log.New(stderr, "sdp-proxy: ", log.Lmsgprefix)
	o, err := parseOptions(args, stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return statusOK
	case err != nil && o != nil: // the file
		logger.Print(err)
		return statusUsage
	case err != nil:
		logger.Printf("%v (sdp-proxy --help tells more)", err)
		return statusUsage
	case o.check:
		fmt.Fprintf(stdout, "%s: %d maps\n", o.file, len(o.config.Maps))
		return statusOK
	}
	d := &daemon{options: o, log: logger, signals: signals}
	if err := d.start(); err != nil {
		logger.Print(err)
		return statusUsage
	}
	return d.serve()
}
