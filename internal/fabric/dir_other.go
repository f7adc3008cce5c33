//go:build !linux

package fabric

import (
	"context"
	"net"

	"github.com/ntbnet/ntbnet/ntb"
)

// Dir is the directory of a local fabric. It needs Linux. Here OpenDir returns
// ntb.ErrNotSupported, and no method can be called.
type Dir struct{}

// OpenDir returns ntb.ErrNotSupported.
func OpenDir(name string) (*Dir, error) { return nil, ntb.ErrNotSupported }

// Remove returns ntb.ErrNotSupported.
func Remove(name string) error { return ntb.ErrNotSupported }

// Board is where the processes of a fabric leave texts for each other. It needs Linux.
// Here OpenBoard returns ntb.ErrNotSupported, and no method can be called.
type Board struct{}

// OpenBoard returns ntb.ErrNotSupported.
func OpenBoard(*Spec) (*Board, error) { return nil, ntb.ErrNotSupported }

func (b *Board) Post(context.Context, []byte) ([][]byte, error) { return nil, ntb.ErrNotSupported }
func (b *Board) Close() error                                   { return nil }

// AcceptPeer returns ntb.ErrNotSupported.
func AcceptPeer(*net.UnixListener) (*net.UnixConn, error) { return nil, ntb.ErrNotSupported }

func (d *Dir) ID() string                      { return "" }
func (d *Dir) Path() string                    { return "" }
func (d *Dir) Close() error                    { return nil }
func (d *Dir) ClaimProcess() (int, error)      { return 0, ntb.ErrNotSupported }
func (d *Dir) ClaimOwner() (int, error)        { return 0, ntb.ErrNotSupported }
func (d *Dir) Owner() (int, bool, error)       { return 0, false, ntb.ErrNotSupported }
func (d *Dir) ClaimPort(int) (int, error)      { return 0, ntb.ErrNotSupported }
func (d *Dir) ReleasePort(int)                 {}
func (d *Dir) Holder(int) (int, bool, error)   { return 0, false, ntb.ErrNotSupported }
func (d *Dir) PublishSocket(int, uint64) error { return ntb.ErrNotSupported }
func (d *Dir) WithdrawSocket(int, uint64)      {}
func (d *Dir) SocketHolder(int, uint64) (int, bool, error) {
	return 0, false, ntb.ErrNotSupported
}
func (d *Dir) AnySocket(int) (PublishedSocket, bool, error) {
	return PublishedSocket{}, false, ntb.ErrNotSupported
}
func (d *Dir) Processes() ([]int, error)             { return nil, ntb.ErrNotSupported }
func (d *Dir) Listen(int) (*net.UnixListener, error) { return nil, ntb.ErrNotSupported }
func (d *Dir) Connect(context.Context, int) (*net.UnixConn, error) {
	return nil, ntb.ErrNotSupported
}
