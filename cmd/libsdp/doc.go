//go:build libsdp && cgo && linux

// Command libsdp is package sdp for C, as a shared library: go build -buildmode=c-shared makes
// libsdp.so of it. cmd/libsdp/install does that, and installs it with its header. The build tag libsdp
// keeps this command, which needs cgo, out of other builds.
//
//	cmd/libsdp/install ~/ntbnet
//	cc prog.c $(PKG_CONFIG_PATH=~/ntbnet/lib/pkgconfig pkg-config --cflags --libs libsdp)
//
// include/sdp.h says what each function does. front.c has them: it refuses what must not reach Go, as
// calls of a forked child, and makes errno of what Go returns. All else is Go: a call of C is one call
// into Go, by the caller's thread.
//
// # Sockets
//
// C has handles, which a table maps to sockets. So what a program does with a handle that is closed, or
// was never one, is EBADF. A socket is a connection, by SDP or by TCP, or a listener.
//
// # Readiness
//
// A program that waits for many connections by its own epoll arms one for an event. A goroutine then
// waits for that, and makes the socket's descriptor readable, which is an eventfd.
package main

func main() {}
