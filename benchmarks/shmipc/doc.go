// Command shmipc measures github.com/cloudwego/shmipc-go for sdp-perf:
//
//	(cd benchmarks && go build -o shmipc-worker ./shmipc)
//	go run ./cmd/sdp-perf bench --shmipc benchmarks/shmipc-worker
//
// It is a worker, as package internal/perf/bench says, in a module of its own, so
// that nobody who uses the transport downloads the other library.
//
// It has two transports:
//
//	shmipc         the stream's Read and Write, as of any net.Conn
//	shmipc-buffer  the library's own API: the writer reserves shared memory and
//	               copies its message into it, the reader is given the bytes in
//	               place and does not touch them, which is in its favour
//
// The library has no flow control: a writer that is ahead of its reader takes all
// of the shared memory, and then writes through the Unix socket, into memory of
// the reader without bound. So in the one-way tests the reader tells the writer
// every few messages how far it is, and the writer is at most two such stretches
// ahead. If anything went through the socket all the same, that is reported in
// place of a figure.
//
// The settings are those of the library's own benchmark, but for 32 MiB of shared
// memory (its default) instead of 256, which is faster since it stays in caches.
package main
