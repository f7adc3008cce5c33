// Command others runs the test suites of other projects over TCP and over SDP, and
// compares them test by test.
//
//	go run ./internal/testing/others ssh                               # a suite that it knows
//	go run ./internal/testing/others all                               # all of those
//	go run ./internal/testing/others std net/http/httputil             # packages of Go's library
//	go run ./internal/testing/others golang.org/x/crypto@v0.58.0 ./ssh # a version of a module
//	go run ./internal/testing/others ../checkout ./...                 # a directory
//
// The suites redis and mysql are this command's own, in testdata/drivers: they test that
// go-redis and go-sql-driver/mysql find out which connections of a pool the server has
// closed. They run redis-server, or MariaDB's mariadbd and mariadb-install-db.
//
// It prints a table of the tests whose results differ, or with -all of all tests. A line of
// totals has the number of connections that used SDP. The exit status is 1 if no connection
// used SDP, or if a test passes over TCP alone and known.go has no reason. An interrupt, or
// SIGTERM, ends the suite and all that it has started, and removes what this command has
// made. Then the exit status is 130. It is 2 for arguments that are neither suites nor
// packages.
//
// # How calls are patched
//
// The suite is copied to a temporary directory. The original stays as it is. Over both transports it
// has the same go.mod, which requires this module too, so its go directive is not older than this
// module's. Over SDP it is built with an overlay (go help build). The overlay changes three things:
//
//   - Package net's Dialer.DialContext and ListenConfig.Listen call package sdp for networks
//     tcp, tcp4 and tcp6. net.Dial, net.DialTimeout, net.Listen, http.Transport, tls.Dial and
//     so on come down to these two. So every package that is linked in is patched, the
//     standard library included. Calls of net by this module are left alone. The Control of
//     gRPC's own dialer is left out. It turns keep-alive probes on, which would make network
//     tcp TCP.
//   - Each test package, and each command, has one more file, which imports
//     testdata/divert, by a path that only the overlay has.
//   - In place of *net.TCPConn, tests name an interface with the methods that connections of
//     both kinds have, as users have to. In place of *net.TCPListener they do so where a
//     method is called on it.
//
// A function whose result type is *net.TCPConn or *net.TCPListener, such as net.DialTCP,
// stays TCP.
//
// # What counts as a difference
//
// A test that fails, is skipped, or is not reached over SDP only, because the binary panicked
// or hung, is run again alone, -repeat times over each transport. It differs if it fails
// again over SDP at least once, and never over TCP. Otherwise it is listed as flaky. Tests
// whose binary died are known by name, and the other tests of the package are run without
// them.
package main
