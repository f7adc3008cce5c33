package main

import (
	"context"
	"log"
	"os"
	"slices"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/proxy"
)

// daemon serves maps, from listening to the end.
type daemon struct {
	*options
	log     *log.Logger
	signals <-chan os.Signal
	server  *proxy.Server
}

// start serves all maps or none.
func (d *daemon) start() error {
	d.server = proxy.NewServer(d.log.Printf)
	if err := d.server.Apply(context.Background(), d.config); err != nil {
		d.server.Close()
		return err
	}
	d.logMaps()
	fabric, owns, ok := d.server.Fabric()
	if !ok {
		return nil
	}
	d.logf("SDP is that of %s", fabric.Whose)
	switch {
	case d.config.Own && owns:
		d.logf("owning the links of %s", fabric.Text)
	case d.config.Own:
		d.logf("another process owns the links of %s; this one may when that has ended", fabric.Text)
	}
	return nil
}

func (d *daemon) logMaps() {
	for i, f := range d.server.Maps() {
		for _, t := range d.config.Maps[i].Targets {
			d.logf("listening on %v, forwarding to %v", f.Addr(), t)
		}
	}
}

// serve runs until a signal or a failed listener, drains, and returns the exit
// status.
func (d *daemon) serve() int {
	defer d.server.Close()
	status := d.waitForEnd()
	open := 0
	for _, f := range d.server.Maps() {
		open += f.Stats().Open
	}
	d.logf("stopping; %d connections have %v to end", open, d.config.DrainTimeout)
	cut := d.drain()
	if d.config.Stats {
		d.printStats()
	}
	if cut > 0 {
		d.log.Printf("cut %d connections that had not ended", cut)
	}
	return status
}

func (d *daemon) waitForEnd() (status int) {
	for {
		select {
		case sig := <-d.signals:
			switch {
			case slices.Contains(countersSignals, sig):
				d.printStats()
			case sig == syscall.SIGHUP:
				d.reload()
			default:
				return statusOK
			}
		case err := <-d.server.Failed():
			d.log.Print(err)
			return statusFailed
		}
	}
}

// reload reads the file again. Without one, SIGHUP is that of a terminal that was closed, and changes nothing.
func (d *daemon) reload() {
	if d.file == "" {
		return
	}
	next := &options{file: d.file}
	err := next.load()
	if err == nil {
		err = d.server.Apply(context.Background(), next.config)
	}
	if err != nil {
		d.log.Printf("nothing is changed: %v", err)
		return
	}
	d.options = next
	d.logMaps()
	d.logf("%s was read again", d.file)
}

// drain stops listening and lets the connections end, until the time is over or
// another signal comes. It returns how many it cut.
func (d *daemon) drain() (cut int) {
	ctx, cancel := context.WithTimeout(context.Background(), d.config.DrainTimeout)
	defer cancel()
	done := make(chan int, 1)
	go func() { done <- d.server.Drain(ctx) }()
	for {
		select {
		case cut = <-done:
			return cut
		case sig := <-d.signals:
			switch {
			case slices.Contains(countersSignals, sig):
				d.printStats()
			case sig != syscall.SIGHUP:
				cancel()
			}
		}
	}
}

func (d *daemon) printStats() {
	for i, f := range d.server.Maps() {
		d.log.Printf("%v to %v: %v", f.Addr(), d.config.Maps[i].Targets[0], f.Stats())
	}
}

// logf logs a message that is not an error.
func (d *daemon) logf(format string, args ...any) {
	if !d.config.Quiet {
		d.log.Printf(format, args...)
	}
}
