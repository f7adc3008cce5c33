// Command sdp-perf measures SDP against loopback TCP and Unix sockets.
//
//	go run ./cmd/sdp-perf
//
// needs no argument and no set-up. It starts a second process of itself, and checks
// every byte of a pseudo-random stream both ways on each transport. Then it
// measures round trips and one-way writes and prints one table. It listens on free
// ports of the fabric that SDP_FABRIC names, and so disturbs no other process.
//
// Between two terminals:
//
//	sdp-perf server --listen sdp://localhost:7000
//	sdp-perf client --connect sdp://localhost:7000
//
// What the machine allows:
//
//	sdp-perf limits
//
// Operations of package shmem, also in rings, and beside Open MPI:
//
//	oshcc -O2 -o oshmem-perf benchmarks/oshmem/perf.c
//	sdp-perf shmem --openmpi ./oshmem-perf
//
// Rings of node processes, by number of nodes, hops and lanes:
//
//	sdp-perf ring
//	sdp-perf ring --nodes 4,8 --hops 2 --lanes 1 --json
//
// Chains of processes: a line of nodes beside relays of sockets, in the same rounds:
//
//	sdp-perf ring --only chains --rounds 9 --duration 200ms
//
// On some processors only, as many as there are somewhere else:
//
//	sdp-perf ring --cpus 4
//
// How it measures is described in package internal/perf and those below it. This
// package has the command line, the processes and the transports.
//
// The exit status is 0, or 1 when something failed, 2 for bad input, and 130 after
// an interrupt. An address on the command line that cannot be listened on or
// dialled is bad input too. Every failure is one line on standard error.
package main
