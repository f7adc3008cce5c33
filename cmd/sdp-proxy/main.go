package main

import (
	"errors"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/proxy"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1 // a listener failed
	statusUsage  = 2 // it could not start
)

func main() {
	// If the reader of the log ends, or the terminal is closed, connections must
	// not end. There is no configuration to read again on SIGHUP.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, append(countersSignals, syscall.SIGTERM, os.Interrupt)...)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, signals))
}

// run runs the program, and returns its exit status.
func run(args []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	logger := log.New(stderr, "sdp-proxy: ", log.Lmsgprefix)
	o, err := parseOptions(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return statusOK
	}
	if err != nil {
		logger.Printf("%v (sdp-proxy --help tells more)", err)
		return statusUsage
	}
	fabric, err := openFabric(o)
	if err != nil {
		logger.Printf("cannot open the SDP fabric: %v", err)
		return statusUsage
	}
	s := &server{options: o, log: logger, signals: signals}
	var is proxy.Fabric
	if fabric != nil {
		defer fabric.Close()
		is, err = proxy.FindFabric()
		if err != nil { // it has changed since it was opened
			logger.Printf("cannot find the SDP fabric: %v", err)
			return statusUsage
		}
	}
	if o.own && !fabric.OwnsLinks() && !is.Shares {
		logger.Printf("--own: the fabric is %q, want one with node=I and nodes=N, as in SDP_FABRIC='ring:lab?node=2&nodes=5'", is.Text)
		return statusUsage
	}
	if err := s.listen(fabric); err != nil {
		logger.Print(err)
		return statusUsage
	}
	if fabric != nil {
		s.logf("SDP is that of %s", is.Whose)
	}
	switch {
	case o.own && fabric.OwnsLinks():
		s.logf("owning the links of %s", is.Text)
	case o.own:
		s.logf("another process owns the links of %s; this one may when that has ended", is.Text)
	}
	return s.serve()
}

// openFabric attaches to the fabric if it is to own links, or if a map needs SDP. Otherwise a proxy
// that only dials would attach and detach with every connection.
func openFabric(o options) (*sdp.Fabric, error) {
	if o.own {
		return sdp.Open("")
	}
	for _, m := range o.maps {
		if m.Listen.Network == "sdp" || m.Target.Network == "sdp" {
			return sdp.Open("")
		}
	}
	return nil, nil
}
