package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/ntbnet/ntbnet/internal/proxy"
)

const statusHead = `sdp-proxy status shows the maps and open connections of a running proxy.

Usage: sdp-proxy status ADDRESS

ADDRESS is that of --metrics of the proxy, as in 127.0.0.1:9478 or
unix:/run/sdp-proxy.sock. A target is (down) when three dials in a row have
failed: those of --check, until two in a row succeed, or else those of clients,
for 10 s.

Flags:
`

// showStatus runs "sdp-proxy status".
func showStatus(args []string, stdout io.Writer) error {
	fs := flags.New("sdp-proxy status", stdout, statusHead, "")
	if err := flags.Parse(fs, args, stdout); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return errors.New("status: want the address of --metrics, as in sdp-proxy status 127.0.0.1:9478")
	}
	address := fs.Arg(0)
	if err := metrics.CheckAddress(address); err != nil {
		return fmt.Errorf("status %w", err)
	}
	r, err := metrics.Client(address).Get("http://sdp-proxy/connections")
	if err != nil {
		return fmt.Errorf("status: no proxy answers at %s: %w", address, errors.Unwrap(err))
	}
	defer r.Body.Close()
	var s proxy.Status
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil || r.StatusCode != http.StatusOK {
		return fmt.Errorf("status: what answers at %s is no sdp-proxy: %s", address, r.Status)
	}
	return printStatus(stdout, s)
}

func printStatus(stdout io.Writer, s proxy.Status) error {
	if s.Draining {
		fmt.Fprintln(stdout, "the proxy ends: it waits for open connections")
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MAP\tTARGETS\tOPEN\tLIMIT\tTOTAL\tREFUSED\tFAILED\tABORTED\tTO TARGET\tFROM TARGET")
	for _, m := range s.Maps {
		limit := "none"
		if m.MaxConnections > 0 {
			limit = fmt.Sprint(m.MaxConnections)
		}
		targets := slices.Clone(m.Targets)
		for i, t := range targets {
			if slices.Contains(m.Down, t) {
				targets[i] += " (down)"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", m.Map, strings.Join(targets, ","), m.Open, limit, m.Total, m.Refused, m.Failed, m.Aborted,
			m.ToTarget, m.FromTarget)
	}
	fmt.Fprintln(w, "\nCLIENT\tMAP\tTARGET\tSECONDS\tTO TARGET\tFROM TARGET")
	for _, m := range s.Maps {
		for _, c := range m.Connections {
			fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%d\t%d\n", c.Client, m.Map, c.Target, c.Seconds, c.ToTarget, c.FromTarget)
		}
	}
	return w.Flush()
}
