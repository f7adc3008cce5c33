//go:build linux

package integration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// stopped reports whether the process is stopped. The state is the letter behind
// the name in parentheses.
func (p *peer) stopped() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "T")
}

// A process that is stopped for a while is not dead. Its connections go on
// afterwards, and one that was dialled meanwhile is opened.
func TestStoppedPeerKeepsItsConnections(t *testing.T) {
	newFabric(t)
	server, address := startServer(t)
	const moving = 4
	flows := make([]*flow, moving)
	results := make(chan error, moving)
	for i := range flows {
		flows[i] = &flow{c: dialSDP(t, address), seed: i}
		go func() { results <- flows[i].dialling() }()
	}
	idle := dialSDP(t, address)
	total := func() (n int64) {
		for _, f := range flows {
			n += f.sent.Load() + f.received.Load()
		}
		return n
	}
	each := func(more int64) {
		t.Helper()
		for _, f := range flows {
			sent, received := f.sent.Load()+more, f.received.Load()+more
			until(t, "every flow moves both ways", func() bool {
				return f.sent.Load() > sent && f.received.Load() > received
			})
		}
	}
	each(4 << 20)

	require.NoError(t, server.cmd.Process.Signal(syscall.SIGSTOP))
	until(t, "the server is stopped", server.stopped)
	dialled := make(chan error, 1)
	go func() {
		c, err := sdp.Dial("sdp", address)
		if err == nil {
			err = (&flow{c: c, seed: moving, n: 1 << 20}).dialling()
			c.Close()
		}
		dialled <- err
	}()
	// What is under way comes to rest. A server that was not stopped would go on.
	stillFor(t, time.Duration(long(10, 3))*time.Second, total)
	require.True(t, server.stopped())
	require.Empty(t, results)
	require.Empty(t, dialled)
	require.NoError(t, server.cmd.Process.Signal(syscall.SIGCONT))

	each(4 << 20)
	require.NoError(t, <-dialled)
	require.NoError(t, (&flow{c: idle, seed: moving + 1, n: 1 << 20}).dialling())
	for _, f := range flows {
		f.enough.Store(true)
	}
	for range flows {
		require.NoError(t, <-results)
	}
	until(t, "the server is done", func() bool { return server.usage().Open == 0 })
	var sent, received int64 = 2 << 20, 2 << 20
	for _, f := range flows {
		sent += f.sent.Load()
		received += f.received.Load()
	}
	there := server.usage()
	require.Equal(t, sent, there.Received)
	require.Equal(t, received, there.Sent)
	require.EqualValues(t, moving+2, there.Conns)
	for _, f := range flows {
		require.NoError(t, f.c.Close())
	}
	require.NoError(t, idle.Close())
	server.end()
}
