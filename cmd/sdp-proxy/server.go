package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/ntbnet/ntbnet/internal/proxy"
)

// daemon serves maps, from listening to the end.
type daemon struct {
	*options
	lines   *proxy.LogQueue
	log     *slog.Logger   // to lines
	level   *slog.LevelVar // of log
	asked   *slog.Logger   // to lines, for what is asked for, also by quiet proxies
	signals <-chan os.Signal
	server  *proxy.Server
	pings   <-chan time.Time // see watchdog

	read    chan readFile // a file that was read again
	reading bool          // until it comes
	again   bool          // read once more then
}

// readFile is what came of reading the file.
type readFile struct {
	options *options
	err     error
}

// start serves all maps or none.
func (d *daemon) start() error {
	d.server = proxy.NewServer(d.log, d.lines)
	err := d.server.Pass(activation.Files(true))
	if err == nil {
		err = d.server.Apply(context.Background(), d.config)
	}
	if err != nil {
		d.server.Close()
		return err
	}
	d.logMaps()
	fabric, owns, ok := d.server.Fabric()
	if !ok {
		return nil
	}
	d.log.Info("in the fabric", "whose", fabric.Whose)
	switch {
	case d.config.Own && owns:
		d.log.Info("owning the links", "fabric", fabric.Text)
	case d.config.Own:
		d.log.Info("another process owns the links; this one may when that has ended", "fabric", fabric.Text)
	}
	return nil
}

// logMaps logs the maps, when they have changed.
func (d *daemon) logMaps() {
	if w := d.config.TooManyConnections(); w != "" {
		d.log.Warn(w)
	}
	for i, f := range d.server.Maps() {
		for _, t := range d.config.Maps[i].TargetNames() {
			d.log.Info("listening", "map", f.Addr().String(), "target", t)
		}
	}
}

// serve runs until a signal or a failed listener, drains, and returns the exit
// status.
func (d *daemon) serve() int {
	defer d.server.Close()
	notifyReady(len(d.config.Maps))
	status := d.waitForEnd()
	open := 0
	for _, f := range d.server.Maps() {
		open += f.Stats().Open
	}
	notifyStopping(open)
	d.log.Info("stopping", "open", open, "drain_timeout", d.config.DrainTimeout.String())
	cut := d.drain()
	if d.config.Stats {
		d.printStats()
	}
	if cut > 0 {
		d.log.Warn("cut connections that had not ended", "connections", cut)
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
			d.log.Error("a listener failed", "reason", err)
			return statusFailed
		case f := <-d.read:
			d.use(f)
		case <-d.pings:
			notifyAlive()
		}
	}
}

// reload has the file read again, in a goroutine, since that may be slow. Without a file, SIGHUP is that of a terminal that
// was closed, and changes nothing.
func (d *daemon) reload() {
	if d.file == "" {
		return
	}
	if d.again = d.reading; d.again {
		return
	}
	notifyReloading()
	d.reading = true
	next := &options{file: d.file}
	go func() { d.read <- readFile{next, next.load()} }()
}

// use serves the maps of a file that was read again.
func (d *daemon) use(f readFile) {
	d.reading = false
	if f.err == nil {
		f.err = d.server.Apply(context.Background(), f.options.config)
	}
	d.server.Reloaded(f.err == nil)
	if f.err != nil {
		d.log.Error("nothing is changed", "reason", f.err)
	} else {
		d.options = f.options
		d.level.Set(d.config.Level())
		d.logMaps()
		d.log.Info("read again", "file", d.file)
	}
	notifyReady(len(d.config.Maps))
	if d.again {
		d.reload()
	}
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
		case <-d.pings:
			notifyAlive()
		}
	}
}

func (d *daemon) printStats() {
	for i, f := range d.server.Maps() {
		s := f.Stats()
		d.asked.Info("counters", "map", f.Addr().String(), "target", d.config.Maps[i].TargetNames()[0], "open", s.Open, "total", s.Total, "refused", s.Refused,
			"failed", s.Failed, "aborted", s.Aborted, "to_target", s.ToTarget, "from_target", s.FromTarget)
	}
}
