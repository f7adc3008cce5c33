// Command sdp-perf measures SDP against loopback TCP and Unix sockets.
//
//	go run ./cmd/sdp-perf
//
// needs no argument and no set-up. It starts a second process of itself, and checks
// every byte of a pseudo-random stream both ways on each transport. Then it
// measures round trips and one-way writes and prints one table. It listens on free
// ports of the fabric that SDP_FABRIC names, and so disturbs no other process.
//
// Between two terminals, or machines, with the flags of iperf3:
//
//	sdp-perf -s
//	sdp-perf -c localhost lat
//
// Package shmem, between processes of this machine:
//
//	sdp-perf shmem
//
// Package internal/perf/meter measures, internal/perf/report prints. This package has the
// command line and the processes. What developers of the transport measure is in the module
// benchmarks. Every failure is one line on standard error.
package main
