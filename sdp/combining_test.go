package sdp

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/net/nettest"
)

// Connections need no more of a bridge whose window is write-combining than that a
// published word leaves at once.
func TestConnOverWriteCombiningWindows(t *testing.T) {
	var seed atomic.Uint64
	f := openWrapped(bounce.Options{Spin: bounce.DefaultSpin}, 4<<20, func(a, b ntb.Device) (ntb.Device, ntb.Device) {
		return ntbfault.Combine(a, seed.Add(1), 0), ntbfault.Combine(b, seed.Add(1), 0)
	})
	defer f.Close()
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(f) })
}
