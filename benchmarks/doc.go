// Package benchmarks measures the transport beside its peers, by Go's benchmarks:
//
//	cd benchmarks
//	go test -run '^$' -bench 'Latency|Throughput' -count 10 | tee new.txt
//	go run golang.org/x/perf/cmd/benchstat@latest -col /transport new.txt
//
// It is for the developers of the transport. Users measure with sdp-perf.
//
// Each file is a subject, and has the peers of it: TCP, Unix sockets, shmipc-go, relays,
// chains of processes without a connection, what the machine allows, Open MPI. Names have
// the form key=value, so that benchstat compares any key:
//
//	streams      Latency, Throughput, Many, Busy…     /transport
//	connections  Connect, Churn, Get                  /transport
//	idle         Idle                                 /transport
//	hops         Hops, Lost, Ring, Share              /chain, /hops, /lanes, /lost
//	limits       Word, Copies                         /by, /queue, /piece
//	engine       Crossover                            /by
//	libsdp       LibSDP                               metrics c-…, go-…
//	shmem        Shmem, ShmemRing                     /lib, /hops
//	tun          Tun                                  /test, /clients
//
// Every benchmark starts the processes that it needs. They are the test binary again, in
// another role, or for tun commands of the module and of others. They end when the benchmark
// does, or its process. All SDP connections are in fabrics of the benchmark's own, which it
// removes. Each of SDP, TCP and Unix sockets, and each chain of them, first carries 1 MiB each
// way, of which every byte is checked. Operations of shmem check what they leave.
//
// The script run compares two checkouts, see there. Peers that are missing are skipped; with
// CI=true that is a failure.
//
// This is a module of its own, so that users of the transport do not download its peers.
package benchmarks
