package sdp

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// combined returns a device whose stores leave in any order, each time another one.
func combined(dev ntb.Device) ntb.Device { return ntbfault.Combine(dev, combinedSeed.Add(1), 0) }

var combinedSeed atomic.Uint64

// Connections need no more of a bridge whose window is write-combining than that a
// published word leaves at once.
func TestConnOverWriteCombiningWindows(t *testing.T) {
	f := openWrapped(bounce.Options{Spin: bounce.DefaultSpin}, 4<<20, func(a, b ntb.Device) (ntb.Device, ntb.Device) {
		return combined(a), combined(b)
	})
	defer f.Close()
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(f) })
}

// Records of each size that shares lines with its header arrive as they were sent, directly and over a hop.
func TestShortRecordsOverWriteCombiningWindows(t *testing.T) {
	for _, nodes := range []int{2, 3} {
		t.Run(fmt.Sprint("nodes=", nodes), func(t *testing.T) {
			leak.Check(t)
			a, b := combinedConn(t, nodes)
			rng := rand.New(rand.NewPCG(1, 2))
			for n := 1; n <= 300; n++ {
				sent, got := make([]byte, n), make([]byte, n)
				for i := range sent {
					sent[i] = byte(rng.Uint32()) // zeros too, as memory has them that nothing was stored to
				}
				for range 8 {
					done := make(chan error, 1)
					go func() {
						_, err := io.ReadFull(b, got) // polls while the record leaves
						done <- err
					}()
					_, err := a.Write(sent)
					require.NoError(t, err)
					require.NoError(t, <-done)
					require.Equal(t, sent, got)
					a, b = b, a
				}
			}
		})
	}
}

// combinedConn returns a connection between the ends of a line of so many nodes.
func combinedConn(t *testing.T, nodes int) (a, b net.Conn) {
	ends := map[[2]int]ntb.Attachment{}
	for i := 1; i < nodes; i++ {
		ends[[2]int{i, i + 1}], ends[[2]int{i + 1, i}] = ntbattach.Ends(func() (a, b ntb.Device) {
			a, b = ntbmem.Pair(4 << 20)
			return combined(a), combined(b)
		})
	}
	all := make([]*Fabric, nodes)
	name := fabrictest.Name(t)
	for i := range all {
		f, err := OpenWith(fmt.Sprintf("line:%s?node=%d&nodes=%d&backend=mem", name, i+1, nodes), Devices{
			Attach: func(w Wire) (ntb.Attachment, error) { return ends[[2]int{w.Node, w.Neighbour}], nil },
		})
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		all[i] = f
	}
	ln, err := all[nodes-1].Listen("sdp", ":7")
	require.NoError(t, err)
	defer ln.Close()
	a, err = all[0].Dial("sdp", fmt.Sprintf("node%d:7", nodes))
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	b, err = ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return a, b
}
