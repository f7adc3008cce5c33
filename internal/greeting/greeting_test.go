package greeting

import (
	"bytes"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/stretchr/testify/require"
)

func TestAGreetingIsThatOfTheExample(t *testing.T) {
	values, wire := wiredoc.Vector(t, "greeting")
	g, err := Read(bytes.NewReader(wire), MaxMessage)
	require.NoError(t, err)
	require.Equal(t, values, "text="+string(wire[12:]))
	require.Equal(t, &Message{
		Version: Version, Ring: 3, Want: WantProcess, Topology: "shm", Nodes: 1, Node: 1, Process: 7, PID: 4242,
	}, g)
	b, err := g.Bytes()
	require.NoError(t, err)
	require.Equal(t, wire, b)
}
