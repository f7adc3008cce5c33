package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Both ends of a connection between two processes are shown, with rates both ways, while it is used.
func TestTopShowsConnectionsAndRates(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	f, err := sdp.Open(name)
	require.NoError(t, err)
	defer f.Close()
	srv := server(t, name)
	var c net.Conn
	eventually(t, "the server listens", func() bool {
		c, err = f.Dial("sdp", "localhost:7007")
		return err == nil
	})
	defer c.Close()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		b := make([]byte, 4096)
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, err := c.Write(b); err != nil {
				stopped <- err
				return
			}
			if _, err := io.ReadFull(c, b); err != nil {
				stopped <- err
				return
			}
		}
	}()
	eventually(t, "both ends have rates both ways", func() bool {
		p := newProgram(nil, "top", "--fabric", name, "--json", "--interval", "100ms")
		require.Zero(t, p.run(), p.stderr.String())
		var r traffic
		dec := json.NewDecoder(&p.stdout)
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&r))
		if len(r.Connections) != 2 { // a process was too busy to answer
			return false
		}
		assert.ElementsMatch(t, []int{os.Getpid(), srv.Process.Pid}, []int{r.Connections[0].PID, r.Connections[1].PID})
		ok := true
		for _, f := range r.Connections {
			assert.InDelta(t, f.WriteRate, f.Inline+f.MMIO+f.DMA, 1)
			assert.Positive(t, f.Total.Read)
			ok = ok && f.ReadRate > 0 && f.WriteRate > 0
		}
		return ok
	})

	text := newProgram(nil, "top", "--fabric", name, "--interval", "50ms", "--count", "2")
	require.Zero(t, text.run(), text.stderr.String())
	assert.Empty(t, text.stderr.String())
	assert.NotContains(t, text.stdout.String(), "\x1b", "it is no terminal")
	assert.Equal(t, 2, strings.Count(text.stdout.String(), " ends: "))
	assert.Regexp(t, fmt.Sprintf(`(?m)^%d +localhost:7007 +process 1 localhost:\d+ +\S+ .?B +\S+ .?B +(stores|inline|-) +\d+$`, srv.Process.Pid), text.stdout.String())
	close(stop)
	require.NoError(t, <-stopped)
}

func TestRatesAreDifferences(t *testing.T) {
	look := func(read, mmio, dma uint64) []*status.Directory {
		return []*status.Directory{{Directory: "/d", Processes: []*status.Process{
			{Process: 1, PID: 7, Connections: []status.Connection{
				{Node: 1, Process: 2, Count: 1, Local: "a:1", Remote: "b:2\x1b[2J", Read: read, MMIO: mmio, DMA: dma, ReadWaits: read / 100},
			}},
			{Process: 3, PID: 8, Connections: []status.Connection{{Node: 1, Process: 2, Count: 5}}},
			{Process: 4, Error: "it does not answer"},
		}}}
	}
	r := compare(look(1000, 0, 10), look(5000, 100, 6010), 2*time.Second)
	require.Len(t, r.Connections, 2)
	f := r.Connections[0]
	require.Equal(t, []float64{2000, 3050, 0, 50, 3000, 20}, []float64{f.ReadRate, f.WriteRate, f.Inline, f.MMIO, f.DMA, f.Parks})
	var b bytes.Buffer
	require.NoError(t, r.table(&b, "", 9))
	require.NotContains(t, b.String(), "\x1b", "what another process says is no order to a terminal")
	require.Regexp(t, `(?m)^7 +a:1 +process 2 b:2.\[2J +2 kB +3.05 kB +DMA +20$`, b.String())
	require.Regexp(t, `(?m)^8 +5 connections +process 2 +- +- +- +-$`, b.String())
	require.Contains(t, b.String(), "6 ends: 2 kB read, 3.05 kB written a second; processes that do not answer: 1 (")
	// A process that begins anew counts from 0 again.
	require.Zero(t, compare(look(5000, 0, 0), look(1000, 0, 0), time.Second).Connections[0].ReadRate)
}
