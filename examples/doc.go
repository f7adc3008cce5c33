// Package examples has short programs, each in a directory of its own, whose first lines say how it is run. It is a
// module of its own, so that nobody else downloads gRPC. go test runs them all.
//
//	server, client   HTTP, with one changed line each; curl works too
//	chat             lines to all who are there; deadlines keep a stalled one from holding up the others
//	grpc             gRPC in both directions of one connection
//	ringnode         a node of a ring: it serves, and asks all others
//	heat             the heat equation by package shmem, on any number of PEs
//	segment          one process writes into another's memory, with a signal behind; and what an end looks like
//
// Programs in other languages, by libsdp (docs/c.md), which internal/libsdp tests:
//
//	c/echo.c               a server with a thread a connection, and its client
//	c/epoll.c              a server with one thread and the kernel's epoll
//	python/sdpsocket.py    a socket by ctypes, and http.client over it
package examples
