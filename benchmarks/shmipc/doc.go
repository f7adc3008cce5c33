// Command shmipc measures github.com/cloudwego/shmipc-go for sdp-perf:
//
//	(cd benchmarks && go build -o shmipc-worker ./shmipc)
//	go run ./cmd/sdp-perf bench --shmipc benchmarks/shmipc-worker
//
// It is a worker as described in package internal/perf/bench. It is a module of its
// own, so that users of the transport do not download the other library.
//
// It has two transports:
//
//	shmipc         the stream's Read and Write, as of any net.Conn
//	shmipc-buffer  the library's own API: the writer reserves shared memory and
//	               copies its message into it, the reader is given the bytes in
//	               place and does not touch them, which is in its favour
//
// The library has no flow control. A writer that is ahead of its reader takes all
// of the shared memory, and then writes through the Unix socket, into memory of the
// reader without bound. So in the one-way tests the reader acknowledges every few
// messages, and the writer is at most two such stretches ahead. If anything goes
// through the socket all the same, the worker reports that instead of a figure.
//
// The settings are those of the library's own benchmark, except that shared memory
// is 32 MiB, the library's default, rather than 256 MiB. That is faster, since it
// stays in caches.
package main
