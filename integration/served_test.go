//go:build linux

package integration

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// A member of a group is served less of a process of another user than root and that user are.
func TestWhatUsersOfAGroupAreServed(t *testing.T) {
	dir, _ := shop(t)
	f, err := sdp.Open("shm:" + dir)
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := f.Dial("sdp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	accepted, err := ln.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	_, err = c.Write(make([]byte, 1000))
	require.NoError(t, err)
	served := func(options ...option) *status.Process {
		p := start(t, filepath.Join(programs, "ntbnet"), []string{"ls", "--json", "--fabric", "shm:" + dir}, options...)
		require.Zero(t, p.status(), p.out.String())
		var r struct{ Fabrics []status.Directory }
		require.NoError(t, json.Unmarshal([]byte(p.out.String()), &r))
		require.Len(t, r.Fabrics[0].Processes, 1)
		require.Empty(t, r.Fabrics[0].Processes[0].Error)
		return r.Fabrics[0].Processes[0]
	}
	own := served()
	require.Positive(t, own.CPU)
	require.Len(t, own.Connections, 2, "both ends")
	var written uint64
	for _, c := range own.Connections {
		written += c.Inline + c.MMIO + c.DMA
	}
	require.EqualValues(t, 1000, written)
	other := served(as(userB, inShop))
	require.Equal(t, []status.Connection{{Node: 1, Process: 1, Count: 2}}, other.Connections)
	require.Equal(t, own.Ports, other.Ports, "these are in the directory")
	require.Positive(t, own.WarmRoom)
	own.CPU, own.WarmRoom, own.Connections, own.Uptime = 0, 0, other.Connections, other.Uptime
	require.Equal(t, own, other)
}
