// Package divert hands the TCP connections of a test binary to package sdp. It is
// compiled only beside a package net that has been patched, and linked into the tests
// of others by a file that imports it for its effect.
package divert

import (
	"context"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"syscall"

	"github.com/ntbnet/ntbnet/sdp"
)

// Log names the environment variable with the file that gets one line for each
// connection dialled, "sdp" or "tcp", and "listen" for each listener.
const Log = "NTBNET_OTHERS_LOG"

// own begins the names of functions of this module.
const own = "github.com/ntbnet/ntbnet/"

var _ net.NtbnetTCPConn = (*sdp.Conn)(nil)

func init() {
	name := os.Getenv(Log)
	if name == "" {
		return // a program that was not started by the comparison
	}
	net.NtbnetDial = func(d *net.Dialer, ctx context.Context, network, address string) (net.Conn, error, bool) {
		if ctx == nil || !isTCP(network) || fromSDP() {
			return nil, nil, false
		}
		tcp := *d
		if setsKeepAlive(d.Control) {
			tcp.Control = nil
		}
		sd := &sdp.Dialer{Timeout: d.Timeout, Deadline: d.Deadline, TCP: &tcp}
		c, err := sd.DialContext(ctx, network, address)
		if err == nil {
			if _, ok := c.(*net.TCPConn); ok {
				note(name, "tcp\n")
			} else {
				note(name, "sdp\n")
			}
		}
		return c, err, true
	}
	net.NtbnetListen = func(lc *net.ListenConfig, ctx context.Context, network, address string) (net.Listener, error, bool) {
		if ctx == nil || !isTCP(network) || fromSDP() {
			return nil, nil, false
		}
		ln, err := (&sdp.ListenConfig{TCP: lc}).Listen(ctx, network, address)
		if err == nil {
			note(name, "listen\n")
		}
		return ln, err, true
	}
}

func isTCP(network string) bool {
	return network == "tcp" || network == "tcp4" || network == "tcp6"
}

// setsKeepAlive reports whether a Dialer's Control is the one of gRPC's own dialer, which
// sets an option of sockets and nothing else. With it network tcp would be TCP. A user
// gives gRPC a dialer without.
func setsKeepAlive(control func(network, address string, c syscall.RawConn) error) bool {
	if control == nil {
		return false
	}
	name := runtime.FuncForPC(reflect.ValueOf(control).Pointer()).Name()
	// Where the compiler inlines that function, the name begins with the caller's.
	return strings.HasPrefix(name, "google.golang.org/grpc/") && strings.Contains(name, ".NetDialerWithTCPKeepalive.")
}

// fromSDP reports whether a call of package net comes from this module, which is not to
// be given back to itself.
func fromSDP() bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)]) // without this function and the one above
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, own) {
			return true
		}
		if !more {
			return false
		}
	}
}

// note appends a line. A file of its own for each line keeps none open in a test that
// counts descriptors.
func note(name, line string) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		panic(err)
	}
	_, err = f.WriteString(line)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		panic(err)
	}
}
