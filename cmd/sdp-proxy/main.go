package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/proxy"
	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1 // a listener failed
	statusUsage  = 2 // it could not start
)

// countersSignals are the signals that print the counters. On other systems than Unix there are none.
var countersSignals []os.Signal

func main() {
	// If the reader of the log ends, or the terminal is closed, connections must not end.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, append(countersSignals, syscall.SIGHUP)...)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, signals))
}

// run runs the program, and returns its exit status. Until it has read its file, which may be slow, SIGTERM ends the
// process at once. After that it sends SIGTERM to signals too.
func run(args []string, stdout, stderr io.Writer, signals chan os.Signal) int {
	refuse := log.New(stderr, "sdp-proxy: ", log.Lmsgprefix) // for the one line if it cannot start
	if len(args) > 0 && args[0] == "status" {
		err := showStatus(args[1:], stdout)
		if err != nil && !errors.Is(err, pflag.ErrHelp) {
			refuse.Print(err)
			return statusUsage
		}
		return statusOK
	}
	o, err := parseOptions(args, stdout)
	switch {
	case err != nil && o != nil: // the file
		refuse.Print(err)
		return statusUsage
	case err != nil:
		return flags.Status("sdp-proxy", err, stderr)
	case o.check:
		if err := o.config.CheckFabric(context.Background()); err != nil {
			refuse.Printf("%s: %v", o.file, err)
			return statusUsage
		}
		fmt.Fprintf(stdout, "%s: %d maps\n", o.file, len(o.config.Maps))
		if w := o.config.TooManyConnections(); w != "" {
			refuse.Printf("warning: %s: %s", o.file, w)
		}
		if o.memory == 0 {
			return statusOK
		}
		most, err := o.config.MostConnections(o.memory)
		if err != nil {
			refuse.Printf("%s: %v", o.file, err)
			return statusUsage
		}
		fmt.Fprintf(stdout, "max-connections: %d\n", most)
		return statusOK
	}
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	d := &daemon{options: o, pings: watchdog(), lines: proxy.NewLogQueue(stderr), level: new(slog.LevelVar), signals: signals, read: make(chan readFile, 1)}
	d.level.Set(o.config.Level())
	d.log, d.asked = proxy.NewLogger(d.lines, o.config, d.level), proxy.NewLogger(d.lines, o.config, slog.LevelInfo)
	slog.SetDefault(d.log) // package sdp logs too
	err = d.start()
	if err == nil {
		defer d.lines.Close()
		return d.serve()
	}
	d.lines.Close()
	refuse.Print(err)
	return statusUsage
}
