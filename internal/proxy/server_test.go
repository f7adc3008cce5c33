package proxy

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// startServer starts a Server in a fabric of its own.
func startServer(t *testing.T) (*testEnv, *Server) {
	t.Helper()
	e := newEnv(t)
	t.Setenv("SDP_FABRIC", "shm:"+fabrictest.Name(t))
	lines := NewLogQueue(io.Discard)
	t.Cleanup(lines.Close)
	s := NewServer(e.log.logger(), lines)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Drain(ctx)
		s.Close()
	})
	return e, s
}

// config returns a Config of maps of tcp with these listeners, and one target each.
func config(drain time.Duration, pairs ...Endpoint) *Config {
	c := NewConfig()
	c.DrainTimeout = drain
	for i := 0; i < len(pairs); i += 2 {
		m := c.Defaults
		m.Listen, m.Targets = pairs[i], []Endpoint{pairs[i+1]}
		c.Maps = append(c.Maps, m)
	}
	return c
}

// names answers each connection with a name.
func (e *testEnv) names(name string) Endpoint {
	ln, at := e.serverOn(networkTCP)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				c.Write([]byte(name))
				readToError(c)
				c.Close()
			}()
		}
	}()
	return at
}

// answers returns a connection to a map, after it got a name.
func (e *testEnv) answers(at Endpoint, name string) net.Conn {
	e.t.Helper()
	c := e.dial(at)
	b := make([]byte, len(name))
	_, err := c.Read(b)
	require.NoError(e.t, err)
	require.Equal(e.t, name, string(b))
	return c
}

func TestAChangedMapLeadsElsewhere(t *testing.T) {
	e, s := startServer(t)
	a, b, at := e.names("a"), e.names("b"), e.free(networkTCP)
	require.NoError(t, s.Apply(t.Context(), config(time.Hour, at, a)))
	serving := s.Maps()[0]
	old := e.answers(serving.Addr(), "a")
	require.NoError(t, s.Apply(t.Context(), config(time.Hour, at, b)))
	require.Same(t, serving, s.Maps()[0], "the listener stays")
	e.answers(serving.Addr(), "b")
	require.Equal(t, 2, serving.Stats().Open)
	old.Close()
	eventually(t, "the old connection ends in order", func() bool { return serving.Stats().Open == 1 })
}

func TestConnectionsOfAChangedMapAreCutWhenTheirTimeIsOver(t *testing.T) {
	e, s := startServer(t)
	at := e.free(networkTCP)
	require.NoError(t, s.Apply(t.Context(), config(time.Hour, at, e.names("a"))))
	old := e.answers(s.Maps()[0].Addr(), "a")
	require.NoError(t, s.Apply(t.Context(), config(0, at, e.names("b"))))
	require.True(t, isReset(readToError(old)))
	c := e.answers(s.Maps()[0].Addr(), "b")
	eventually(t, "the old connection has ended", func() bool { return s.Maps()[0].Stats().Open == 1 })
	// A map that is the same stays, with its connections.
	require.NoError(t, s.Apply(t.Context(), config(0, at, s.Maps()[0].serves().Targets[0])))
	time.Sleep(time.Millisecond)
	require.Equal(t, 1, s.Maps()[0].Stats().Open)
	c.Close()
}

func TestRemovedMapsListenNoMoreAndDrain(t *testing.T) {
	e, s := startServer(t)
	a, b, name := e.free(networkTCP), e.free(networkUnix), e.names("a")
	require.NoError(t, s.Apply(t.Context(), config(time.Hour, a, name, b, name)))
	gone := s.Maps()[0].Addr()
	c := e.answers(gone, "a")
	require.NoError(t, s.Apply(t.Context(), config(time.Hour, b, name)))
	_, err := e.tryDial(gone)
	require.Error(t, err)
	e.answers(b, "a")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout", "it is open")
}

func TestABadConfigChangesNothing(t *testing.T) {
	e, s := startServer(t)
	at, name := e.free(networkTCP), e.names("a")
	require.NoError(t, s.Apply(t.Context(), config(time.Hour, at, name)))
	_, used := e.serverOn(networkTCP)
	before := s.Maps()[0]
	for want, c := range map[string]*Config{
		"address already in use":        config(time.Hour, at, used, used, name),
		"leads back to itself":          config(time.Hour, at, before.Addr()),
		"the target cannot be":          config(time.Hour, at, Endpoint{networkSDP, "node7:1"}),
		"no node \"192.0.2.1\"":         config(time.Hour, at, Endpoint{networkSDP, "192.0.2.1:1"}),
		"own and log cannot be changed": {Own: true, Maps: config(0, at, name).Maps},
	} {
		require.ErrorContains(t, s.Apply(t.Context(), c), want)
		require.Same(t, before, s.Maps()[0])
		e.answers(before.Addr(), "a")
	}
}
