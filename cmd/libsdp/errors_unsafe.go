//go:build libsdp && cgo && linux

package main

/*
#include "front.h"
*/
import "C"

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// explained is an errno with a text.
type explained struct {
	errno syscall.Errno
	text  string
}

func (e *explained) Error() string { return "sdp: " + e.text }
func (e *explained) Unwrap() error { return e.errno }

var (
	errByTCP = &explained{syscall.EOPNOTSUPP, "the connection is by TCP"}
	errLent  = &explained{syscall.EBUSY, "what sdp_peek or sdp_reserve lent is out"}
)

// failed returns what a call returns for err: 0 for none and for the end of the stream, else a negative errno. The text
// is kept for sdp_error, in the thread that has called.
func failed(err error) C.int {
	if err == nil || err == io.EOF {
		return 0
	}
	errno := errnoOf(err)
	if errno != syscall.EAGAIN { // which is no news
		text := unsafe.Slice((*byte)(unsafe.Pointer(C.sdpx_text())), C.SDPX_TEXT)
		text[copy(text[:len(text)-1], err.Error())] = 0
	}
	return -C.int(errno)
}

// errnoOf returns the errno of an error of packages sdp and net.
func errnoOf(err error) syscall.Errno {
	var (
		errno syscall.Errno
		name  *net.DNSError
		bad   *net.AddrError
		parse *net.ParseError
	)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return syscall.ETIMEDOUT
	case errors.Is(err, net.ErrClosed):
		return syscall.EBADF
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &name) && name.IsNotFound:
		return syscall.ENOENT
	case errors.As(err, &bad), errors.As(err, &parse):
		return syscall.EINVAL
	case errors.Is(err, errors.ErrUnsupported):
		return syscall.EOPNOTSUPP
	}
	return syscall.EIO
}
