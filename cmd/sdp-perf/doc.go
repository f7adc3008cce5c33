// Command sdp-perf measures SDP against loopback TCP and Unix sockets.
//
//	go run ./cmd/sdp-perf
//
// needs no argument and no set-up. "sdp-perf --help" has the other tests, and the flags, which are iperf3's. It listens
// on free ports of the fabric that SDP_FABRIC names, and so disturbs no other process.
//
// Package internal/perf/meter measures, internal/perf/report prints. This package has the
// command line and the processes. What developers of the transport measure is in the module
// benchmarks. Every failure is one line on standard error.
package main
