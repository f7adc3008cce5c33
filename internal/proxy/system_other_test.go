//go:build !unix

package proxy

import (
	"errors"
	"syscall"
)

func shortenBacklog(syscall.RawConn) error { return errors.ErrUnsupported }
