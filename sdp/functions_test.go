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
	a, b := endsOf(t, "NTBNET_FUNCTIONS")
	testConnOf(t, "ivshmem:"+a, "ivshmem:"+b)
}

// TestConnOfBridges is TestConnOfFunctions for the two ends of a bridge that Linux drives.
func TestConnOfBridges(t *testing.T) {
	a, b := endsOf(t, "NTBNET_BRIDGES")
	testConnOf(t, "ntb:"+a, "ntb:"+b)
}

// endsOf returns the two ends of a memory or a bridge, which a variable names.
func endsOf(t *testing.T, variable string) (a, b string) {
	t.Helper()
	a, b, ok := strings.Cut(os.Getenv(variable), ";")
	if !ok {
		t.Skip(variable + " names no two ends, as 0000:00:03.0;0000:00:04.0 does")
	}
	return a, b
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

// TestWordsOfFunctions is TestNoWordStallsConnections over memory of a virtual machine.
func TestWordsOfFunctions(t *testing.T) {
	a, b := endsOf(t, "NTBNET_FUNCTIONS")
	testWords(t, "ivshmem:"+a, "ivshmem:"+b)
}

// TestWordsOfBridges is TestNoWordStallsConnections over a bridge that Linux drives.
func TestWordsOfBridges(t *testing.T) {
	a, b := endsOf(t, "NTBNET_BRIDGES")
	testWords(t, "ntb:"+a, "ntb:"+b)
}
