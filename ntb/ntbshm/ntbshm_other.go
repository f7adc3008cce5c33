//go:build !linux || !(amd64 || arm64)

package ntbshm

import (
	"net"

	"github.com/ntbnet/ntbnet/ntb"
)

func connect(*net.UnixConn, Options) (ntb.Device, error) { return nil, ntb.ErrNotSupported }
