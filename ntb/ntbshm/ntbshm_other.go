//go:build !linux || !(amd64 || arm64)

package ntbshm

import (
	"net"

	"github.com/ntbnet/ntbnet/ntb"
)

func connect(cable *net.UnixConn, _ Options) (ntb.Device, error) {
	cable.Close()
	return nil, ntb.ErrNotSupported
}
