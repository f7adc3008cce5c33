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
	opDial       = "dial"
	opListen     = "listen"
	opResolve    = "resolve"
	opAccept     = "accept"
	opRead       = "read"
	opWrite      = "write"
	opWritev     = "writev"
	opReadFrom   = "readfrom"
	opWriteTo    = "writeto"
	opClose      = "close"
	opSet        = "set"
	opRawControl = "raw-control"
	opRawRead    = "raw-read"
	opRawWrite   = "raw-write"
)

// systemCalls has the calls that fail in package net, by operation. An error of ours that has
// an error number is named for the call.
var systemCalls = map[string]string{
	opDial:     "connect",
	opListen:   "bind",
	opAccept:   "accept",
	opRead:     "read",
	opWrite:    "write",
	opWritev:   "writev",
	opReadFrom: "sendfile",
}

// opError makes the error that a caller sees. io.EOF is returned unchanged, since
// it is no failure. Everything else becomes a *net.OpError.
func opError(op string, source, addr net.Addr, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: networkOf(source, addr), Source: source, Addr: addr, Err: cause(op, err)}
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

// cause returns the err of an operation in package net's terms.
func cause(op string, err error) error {
	switch {
	case errors.Is(err, bounce.ErrClosed), errors.Is(err, listen.ErrClosed),
		errors.Is(err, fabric.ErrClosed), errors.Is(err, link.ErrClosed):
		return net.ErrClosed
	case errors.Is(err, context.DeadlineExceeded):
		return &timeoutError{err}
	case errors.Is(err, context.Canceled):
		return &canceledError{err}
	}
	number, known := err.(syscall.Errno)
	name := systemCalls[op]
	switch {
	case name == "" || errors.As(err, new(*os.SyscallError)):
		return err
	case known:
		return os.NewSyscallError(name, number)
	case errors.As(err, &number):
		return &explainedError{err, os.NewSyscallError(name, number)}
	}
	return err
}

// explainedError is the error of a system call with more to read.
type explainedError struct {
	error
	call error // the *os.SyscallError
}

func (e *explainedError) Unwrap() []error { return []error{e.error, e.call} }

// canceledError is the error of a dial whose context was canceled.
type canceledError struct{ error }

func (e *canceledError) Error() string {
	const text = "operation was canceled" // as package net has it
	if e.error == context.Canceled {
		return text
	}
	return text + ": " + e.error.Error()
}
func (e *canceledError) Unwrap() error { return e.error }

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
