//go:build linux && (amd64 || arm64)

package sdp

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// Nodes whose bridge is memory of a virtual machine, with both ends in this process.
func TestConnOfFunctions(t *testing.T) {
	ends := strings.Split(os.Getenv("NTBNET_FUNCTIONS"), ";")
	if len(ends) != 2 {
		t.Skip("NTBNET_FUNCTIONS names no two functions of one memory, as 0000:00:03.0;0000:00:04.0,poll does")
	}
	testConnOf(t, "ivshmem:"+ends[0], "ivshmem:"+ends[1])
}

// TestConnOfBridges is TestConnOfFunctions for the two ends of a bridge that Linux drives.
func TestConnOfBridges(t *testing.T) {
	ends := strings.Split(os.Getenv("NTBNET_BRIDGES"), ";")
	if len(ends) != 2 {
		t.Skip("NTBNET_BRIDGES names no two functions of one bridge, as 0000:00:03.0;0000:00:04.0 does")
	}
	testConnOf(t, "ntb:"+ends[0], "ntb:"+ends[1])
}

// testConnOf has two nodes pass the suite of net.Conns, whose ends of a wire are given.
func testConnOf(t *testing.T, right, left string) {
	t.Helper()
	line := "line:" + fabrictest.Name(t)
	one, err := Open(line + "?node=1&nodes=2&right=" + right)
	require.NoError(t, err)
	defer one.Close()
	two, err := Open(line + "?node=2&nodes=2&left=" + left)
	require.NoError(t, err)
	defer two.Close()
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipeBetween(one, two, ":0") })
}
