//go:build !linux || !(amd64 || arm64)

package ntbshm

import (
	"net"

	"github.com/ntbnet/ntbnet/ntb"
)

// Check returns ntb.ErrNotSupported.
func Check() error { return ntb.ErrNotSupported }

func connect(cable *net.UnixConn, _ Options) (ntb.Device, error) {
	cable.Close()
	return nil, ntb.ErrNotSupported
}
