//go:build !linux || !(amd64 || arm64)

package ntbshm

import (
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Check returns ntb.ErrNotSupported.
func Check() error { return ntb.ErrNotSupported }

func connect(cable *unixsock.Conn, _ Options) (ntb.Device, error) {
	cable.Close()
	return nil, ntb.ErrNotSupported
}
