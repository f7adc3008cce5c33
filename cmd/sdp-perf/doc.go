// Command sdp-perf measures SDP against loopback TCP and Unix sockets.
//
//	go run ./cmd/sdp-perf
//
// needs no argument and no set-up: it starts a second process of itself, checks
// every byte of a pseudo-random stream both ways on each transport, then measures
// round trips and one-way writes and prints one table. It listens on free
// ports of the fabric that SDP_FABRIC names, and disturbs nobody.
//
// Between two terminals:
//
//	sdp-perf server --listen sdp://localhost:7000
//	sdp-perf client --connect sdp://localhost:7000
//
// The whole table, beside what the machine allows, and a picture:
//
//	sdp-perf limits
//	sdp-perf bench --svg picture.svg
//	sdp-perf idle --connections 10000
//
// Operations of package shmem, in rings too, and beside Open MPI:
//
//	oshcc -O2 -o oshmem-perf benchmarks/oshmem/perf.c
//	sdp-perf shmem --openmpi ./oshmem-perf
//
// Of a ring that runs, nodes, links and routes, and a picture of them:
//
//	sdp-perf topology --fabric ring:NAME --svg picture.svg
//
// Rings of node processes, by number of nodes, hops and lanes:
//
//	sdp-perf ring
//	sdp-perf ring --nodes 4,8 --hops 2 --lanes 1 --json
//
// How it measures is in package internal/perf and those below it. Here are the
// command line, the processes and the transports.
//
// Exit status: 0, or 1 when something failed, 2 for bad input (an address on the
// command line that cannot be listened on or dialed is that too), 130 when it was
// interrupted. Every failure is one line on standard error.
package main
