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
	if fabric != nil {
		defer fabric.Close()
	}
	if o.own && !fabric.OwnsLinks() {
		logger.Printf("--own: SDP_FABRIC is %q, want one with node=I and nodes=N, as in ring:lab?node=2&nodes=5", os.Getenv("SDP_FABRIC"))
		return statusUsage
	}
	s := &server{options: o, log: logger, signals: signals}
	if err := s.listen(fabric); err != nil {
		logger.Print(err)
		return statusUsage
	}
	if fabric != nil {
		if whose, err := proxy.Whose(); err == nil {
			s.logf("SDP is that of %s", whose)
		}
	}
	if o.own {
		s.logf("owning the links of %s", os.Getenv("SDP_FABRIC"))
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
			return sdp.Open("") // the fabric that SDP_FABRIC names, or the user's own
		}
	}
	return nil, nil
}
