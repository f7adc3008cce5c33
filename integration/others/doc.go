// Command others runs the test suites of other projects over TCP and over SDP, and
// compares them test by test.
//
//	go run ./integration/others ssh                               # a suite that it knows
//	go run ./integration/others all                               # all of those
//	go run ./integration/others std net/http/httputil             # packages of Go's library
//	go run ./integration/others golang.org/x/crypto@v0.58.0 ./ssh # a version of a module
//	go run ./integration/others ../checkout ./...                 # a directory
//
// It prints a table of the tests whose results differ, or of all of them with -all, and
// a line of totals with the number of connections that took SDP. Its exit status is 1 if
// a test that passes over TCP does not pass over SDP, unless known.go says why, and if
// no connection took SDP.
//
// # How calls are patched
//
// The suite is copied to a temporary directory and stays as it is. Over SDP it is
// built with an overlay (go help build), in which
//
//   - package net's Dialer.DialContext and ListenConfig.Listen, which net.Dial,
//     net.DialTimeout, net.Listen, http.Transport, tls.Dial and so on come down to,
//     call package sdp for networks tcp, tcp4 and tcp6. So every package that is linked
//     in is patched, the standard library included. Calls of net by this module are
//     left alone. The Control of gRPC's own dialer is left out, which makes network tcp
//     TCP: it turns keep-alive probes on.
//   - each test package, and each command, has one more file, which imports
//     testdata/divert.
//   - tests say an interface in place of *net.TCPConn, with the methods that connections
//     of both kinds have, as users have to; and one in place of *net.TCPListener where a
//     method is called on it.
//
// What returns a *net.TCPConn or *net.TCPListener by its type, like net.DialTCP, stays
// TCP.
//
// # What counts as a difference
//
// A test that fails over SDP only, that is skipped there only, or that is not reached
// there, because the binary panicked or hung, is run again alone, -repeat times over each. It
// differs if it fails again over SDP at least once, and never over TCP; if it does not,
// it is shown as flaky. Tests whose binary died are known by name, and the others of the
// package are run without them.
package main
