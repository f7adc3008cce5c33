package fabric

import (
	"bytes"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/stretchr/testify/require"
)

func TestAGreetingIsThatOfTheExample(t *testing.T) {
	values, wire := wiredoc.Vector(t, "greeting")
	g, err := readGreeting(bytes.NewReader(wire), maxGreeting)
	require.NoError(t, err)
	require.Equal(t, values, "text="+string(wire[12:]))
	require.Equal(t, &greeting{
		Version: greetingVersion, Ring: 3, Want: wantProcess, Topology: "shm", Nodes: 1, Node: 1, Process: 7, PID: 4242,
	}, g)
	b, err := g.frame()
	require.NoError(t, err)
	require.Equal(t, wire, b)
}
