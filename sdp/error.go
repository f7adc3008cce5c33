package sdp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/listen"
)

// Names of operations in a *net.OpError, as in package net.
const (
	opDial    = "dial"
	opListen  = "listen"
	opResolve = "resolve"
	opAccept  = "accept"
	opRead    = "read"
	opWrite   = "write"
	opWritev  = "writev"
	opClose   = "close"
	opSet     = "set"
)

// opError makes the error that a caller sees. io.EOF is returned unchanged, since
// it is no failure. Everything else becomes a *net.OpError.
func opError(op string, source, addr net.Addr, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: networkOf(source, addr), Source: source, Addr: addr, Err: cause(err)}
}

// networkOf returns the network of two addresses, either of which may be nil.
func networkOf(a, b net.Addr) string {
	for _, addr := range []net.Addr{a, b} {
		if t, ok := addr.(*net.TCPAddr); ok {
			return t.Network()
		}
	}
	return Network
}

// cause returns err in package net's terms.
func cause(err error) error {
	switch {
	case errors.Is(err, bounce.ErrClosed), errors.Is(err, listen.ErrClosed),
		errors.Is(err, fabric.ErrClosed), errors.Is(err, link.ErrClosed):
		return net.ErrClosed
	case errors.Is(err, context.DeadlineExceeded):
		return &timeoutError{err}
	}
	return err
}

// timeoutError is the error of a dial that reached its deadline.
type timeoutError struct{ err error }

func (e *timeoutError) Error() string {
	if e.err == context.DeadlineExceeded {
		return "i/o timeout"
	}
	return "i/o timeout: " + e.err.Error()
}
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }
func (e *timeoutError) Unwrap() []error {
	return []error{e.err, os.ErrDeadlineExceeded, syscall.ETIMEDOUT}
}
