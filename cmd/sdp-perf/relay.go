package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// relayCommand is a process of a chain of sockets, between client and server. Its arguments are
// the directory of the sockets, which it removes at its end, where it listens, and where it
// dials. It runs until its standard input ends, as a child does.
const relayCommand = "relay"

func runRelay(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) != 3 {
		return badInputf("%s is started by sdp-perf itself", relayCommand)
	}
	defer os.RemoveAll(args[0])
	at, atErr := perf.ParseEndpoint(args[1])
	next, nextErr := perf.ParseEndpoint(args[2])
	if err := errors.Join(atErr, nextErr); err != nil {
		return badInputf("%s is started by sdp-perf itself (%w)", relayCommand, err)
	}
	answers := json.NewEncoder(out)
	ln, err := listen(ctx, at)
	if err != nil {
		return answers.Encode(childReady{Error: oneLine(err)})
	}
	defer ln.Close()
	go relayAll(ctx, ln, next) // until ln is closed
	if err := answers.Encode(childReady{Endpoints: []perf.Endpoint{whereItListens(ln, at)}}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// relayAll relays each connection that ln accepts, to one of its own.
func relayAll(ctx context.Context, ln net.Listener, next perf.Endpoint) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			if err := relay(ctx, c, next); err != nil {
				fmt.Fprintln(os.Stderr, "sdp-perf: "+oneLine(err))
			}
		}()
	}
}

// relay copies between c and a connection to the next process, both ways, as one writes it with
// package net. It closes both when one side has closed and the other one has had it all.
func relay(ctx context.Context, c net.Conn, next perf.Endpoint) error {
	defer c.Close()
	d, err := dial(ctx, next)
	if err != nil {
		return err
	}
	defer d.Close()
	there := make(chan struct{})
	go func() {
		defer close(there)
		io.Copy(d, c) // the ends notice and report what goes wrong
		d.(interface{ CloseWrite() error }).CloseWrite()
	}()
	io.Copy(c, d)
	c.Close()
	<-there
	return nil
}
