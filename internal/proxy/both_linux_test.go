package proxy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAMapListensOnTCPAndSDP(t *testing.T) {
	e := newEnv(t)
	m := Map{Listen: Endpoint{networkBoth, "127.0.0.1:0"}, Targets: []Endpoint{e.names("a")}, MaxConnections: 2}
	f := e.serve(&m)
	byTCP := f.Addr().half(networkTCP)
	bySDP := Endpoint{networkSDP, "localhost" + f.Addr().half(networkSDP).Address}
	first := e.answers(byTCP, "a")
	second := e.answers(bySDP, "a")
	require.Equal(t, 2, f.Stats().Open)
	for _, at := range []Endpoint{byTCP, bySDP} { // they have one limit
		c, err := e.tryDial(at)
		if err == nil {
			err = readToError(c)
			c.Close()
		}
		require.Error(t, err)
	}
	require.EqualValues(t, 2, f.Stats().Refused)
	next := m
	next.Targets = []Endpoint{e.names("b")}
	f.use(&next, time.Hour)
	first.Close()
	second.Close()
	eventually(t, "both have their line", func() bool {
		all := strings.Join(e.log.all(), "")
		line := " end=closed map=" + f.Addr().String() + " client="
		return strings.Count(all, line) == 2 && strings.Contains(all, " client_by=tcp target=") && strings.Contains(all, " client_by=sdp target=")
	})
	e.answers(byTCP, "b")
	e.answers(bySDP, "b")
	f.Close()
	for _, at := range []Endpoint{byTCP, bySDP} {
		_, err := e.tryDial(at)
		require.Error(t, err)
	}
}

func TestAMapThatCannotListenOnBothListensOnNeither(t *testing.T) {
	e := newEnv(t)
	port := fmt.Sprintf(":%d", 20000+rand.IntN(10000)) // none that a connection of TCP has for its own end
	used, err := e.fabric.Listen(networkSDP, "localhost"+port)
	require.NoError(t, err)
	defer used.Close()
	m := Map{Listen: Endpoint{networkBoth, "127.0.0.1" + port}, Targets: []Endpoint{e.names("a")}}
	_, err = open(t.Context(), &m, env{fabric: e.fabric, log: e.log.logger()})
	require.ErrorContains(t, err, "cannot listen on sdp://"+port+": address already in use")
	_, err = e.tryDial(m.Listen.half(networkTCP))
	require.Error(t, err)
}

// A loop is found on either network.
func TestLoopsThroughBothAreFound(t *testing.T) {
	e, s := startServer(t)
	both := Endpoint{networkBoth, "127.0.0.1:0"}
	require.NoError(t, s.Apply(t.Context(), config(time.Hour, both, e.names("a"))))
	port := s.Maps()[0].Addr().half(networkSDP).Address
	for _, back := range []Endpoint{{networkTCP, "127.0.0.1" + port}, {networkSDP, "localhost" + port}} {
		require.ErrorContains(t, s.Apply(t.Context(), config(time.Hour, both, back)), "leads back to itself")
	}
}
