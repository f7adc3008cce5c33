//go:build !linux

package hostdir

import (
	"context"
	"strconv"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Dir is the directory of a host. It needs Linux. Here Open returns
// ntb.ErrNotSupported, and no method can be called.
type Dir struct{ *Claims }

// Find returns the empty string.
func Find(...string) string { return "" }

// Choose returns ntb.ErrNotSupported.
func Choose(...string) (string, func(), error) { return "", nil, ntb.ErrNotSupported }

// Bases returns nothing.
func Bases() []string { return nil }

// Open returns ntb.ErrNotSupported.
func Open(p Place, create bool) (*Dir, error) { return nil, ntb.ErrNotSupported }

// CheckUser returns ntb.ErrNotSupported.
func CheckUser() error { return ntb.ErrNotSupported }

// Look returns ntb.ErrNotSupported.
func (p Place) Look() (Found, error) { return Found{}, ntb.ErrNotSupported }

// UserName returns the number.
func UserName(uid int) string { return strconv.Itoa(uid) }

// GroupName returns the number.
func GroupName(gid int) string { return strconv.Itoa(gid) }

// Hosts returns ntb.ErrNotSupported.
func (p Place) Hosts(int) ([]int, error) { return nil, ntb.ErrNotSupported }

// Foreign returns none.
func Foreign() []Foreigner { return nil }

// Elsewhere returns none.
func Elsewhere(int, time.Time) ([]Use, int) { return nil, 0 }

// Stopped returns false.
func Stopped(int) bool { return false }

// List returns ntb.ErrNotSupported.
func List(string) ([]string, error) { return nil, ntb.ErrNotSupported }

// Remove returns ntb.ErrNotSupported.
func Remove(...Place) error { return ntb.ErrNotSupported }

// PeerOf returns ntb.ErrNotSupported.
func PeerOf(*unixsock.Conn) (Peer, error) { return Peer{}, ntb.ErrNotSupported }

func (d *Dir) Watch(func(error))                                 {}
func (d *Dir) Lost() error                                       { return nil }
func (d *Dir) Path() string                                      { return "" }
func (d *Dir) ClaimProcess() (int, error)                        { return 0, ntb.ErrNotSupported }
func (d *Dir) ClaimOwner() (int, error)                          { return 0, ntb.ErrNotSupported }
func (d *Dir) Handover(int)                                      {}
func (d *Dir) HandedOver(int, int) bool                          { return false }
func (d *Dir) Holdings() ([]Holding, error)                      { return nil, ntb.ErrNotSupported }
func (d *Dir) Dead() ([]string, error)                           { return nil, ntb.ErrNotSupported }
func (d *Dir) RemoveDead() ([]string, error)                     { return nil, ntb.ErrNotSupported }
func (d *Dir) Listen(int) (*unixsock.Listener, error)            { return nil, ntb.ErrNotSupported }
func (d *Dir) Accept(*unixsock.Listener) (*unixsock.Conn, error) { return nil, ntb.ErrNotSupported }
func (d *Dir) Connect(context.Context, int, []int) (*unixsock.Conn, error) {
	return nil, ntb.ErrNotSupported
}
func (d *Dir) Cables(int, []int) (string, error) { return "", ntb.ErrNotSupported }
