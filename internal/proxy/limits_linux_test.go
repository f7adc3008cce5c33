package proxy

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/stretchr/testify/require"
)

func TestTargetsAreTriedInTheOrderOfTheMap(t *testing.T) {
	a, b, c := Endpoint{networkTCP, "a:1"}, Endpoint{networkTCP, "b:1"}, Endpoint{networkTCP, "c:1"}
	m := &Map{Targets: []Endpoint{a, b, c}}
	f := newForwarder(m, env{log: new(logLines).logger()})
	defer f.conns.cancel()
	require.Equal(t, []Endpoint{a, b, c}, f.targets.order(m))
	m.Balance = roundRobin
	require.Equal(t, []Endpoint{b, c, a}, f.targets.order(m))
	require.Equal(t, []Endpoint{c, a, b}, f.targets.order(m))
	require.Equal(t, []Endpoint{a, b, c}, f.targets.order(m))
	m.Balance = leastConn
	f.targets.of(a).open, f.targets.of(b).open = 2, 1
	require.Equal(t, []Endpoint{c, b, a}, f.targets.order(m))
	// One that is down comes last, until it answers or its time is over.
	for range checksToFall {
		require.Equal(t, c, f.targets.order(m)[0])
		f.targets.dialled(m, c, 0, errors.New("no"))
	}
	require.Equal(t, []Endpoint{b, a, c}, f.targets.order(m))
	f.targets.dialled(m, c, 0, nil)
	require.Equal(t, c, f.targets.order(m)[0])
	for range checksToFall {
		f.targets.dialled(m, c, 0, errors.New("no"))
	}
	f.targets.of(c).until = time.Now()
	require.Equal(t, c, f.targets.order(m)[0])
	m.Check = time.Hour
	for range checksToRise {
		require.Equal(t, b, f.targets.order(m)[0])
		f.targets.dialled(m, c, 0, nil)
	}
	require.Equal(t, c, f.targets.order(m)[0])
}

func TestAConnectionGoesToATargetThatAnswers(t *testing.T) {
	e := newEnv(t)
	dead, at := e.serverOn(networkTCP)
	dead.Close()
	m := NewConfig().Defaults
	m.Listen, m.Targets = e.free(networkUnix), []Endpoint{at, e.names("b")}
	e.serve(&m)
	for range 2 * checksToFall {
		e.answers(m.Listen, "b")
	}
	require.Contains(t, strings.Join(e.log.all(), ""), `msg="a target is down" map=unix://`)
}

func TestChecksFindTargetsThatComeBack(t *testing.T) {
	e := newEnv(t)
	path := e.free(networkUnix)
	m := NewConfig().Defaults
	m.Listen, m.Targets, m.Check = e.free(networkUnix), []Endpoint{path}, time.Millisecond
	f := e.serve(&m)
	down := func() bool { return f.targets.known(f.serves())[0].down }
	eventually(t, "it is down", down)
	ln, err := unixsock.ListenAs(t.Context(), path.Address, unixsock.Rights{UID: -1, GID: -1})
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	eventually(t, "it is up", func() bool { return !down() })
}

func TestRetriesReachATargetThatComesLate(t *testing.T) {
	e := newEnv(t)
	path := e.free(networkUnix)
	m := NewConfig().Defaults
	m.Listen, m.Targets, m.Retries = e.free(networkUnix), []Endpoint{path}, 1000
	f := e.serve(&m)
	c := e.dial(m.Listen)
	eventually(t, "one dial has failed", func() bool { return f.targets.known(f.serves())[0].failed > 0 })
	ln, err := unixsock.ListenAs(t.Context(), path.Address, unixsock.Rights{UID: -1, GID: -1})
	require.NoError(t, err)
	defer ln.Close()
	target := accept(t, ln)
	sendHalf(t, target, []byte("late"))
	wantAll(t, c, []byte("late"))
}

// serve serves a map until the end of the test.
func (e *testEnv) serve(m *Map) *Forwarder {
	e.t.Helper()
	f, err := open(e.t.Context(), m, env{fabric: e.fabric, log: e.log.logger()})
	require.NoError(e.t, err)
	go f.Serve()
	e.t.Cleanup(f.Close)
	return f
}

// cut is logged for a connection that the proxy cut for this cause.
func (e *testEnv) logged(end, by, cause string) {
	e.t.Helper()
	eventually(e.t, end+" for "+cause, func() bool {
		for _, l := range e.log.all() {
			if strings.Contains(l, "end="+end+" ") && strings.Contains(l, " by="+by+" cause="+cause) {
				return true
			}
		}
		return false
	})
}

func TestSilentConnectionsAreCut(t *testing.T) {
	eachPair(t, networks, func(t *testing.T, listen, target string) {
		for cause, m := range map[string]Map{"idle-timeout": {IdleTimeout: 50 * time.Millisecond}, "half-closed-timeout": {HalfClosed: 50 * time.Millisecond}} {
			e := newEnv(t)
			ln, at := e.serverOn(target)
			f := e.forward(listen, at, m)
			dialled, err := e.tryDial(f.Addr())
			for ; errors.Is(err, syscall.ECONNRESET); dialled, err = e.tryDial(f.Addr()) {
				accept(t, ln) // it was cut before the dial returned
			}
			require.NoError(t, err)
			client, server := dialled.(conn), accept(t, ln)
			defer client.Close()
			require.NoError(t, client.SetDeadline(time.Now().Add(testTimeout)))
			if m.HalfClosed > 0 {
				sendHalf(t, client, []byte("all"))
				wantAll(t, server, []byte("all"))
			}
			e.logged("aborted", "proxy", cause)
			for _, c := range []conn{client, server} {
				err := readToError(c)
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			}
		}
	})
}

// A side that has sent its end of file may be reset nevertheless, while the other one says nothing.
func TestResetAfterAnEndOfFileIsPassedOn(t *testing.T) {
	e := newEnv(t)
	var stay []conn
	for _, networks := range [][2]string{{networkTCP, networkSDP}, {networkSDP, networkTCP}} {
		for _, by := range []side{byClient, byTarget} {
			client, server, _ := e.pair(networks[0], networks[1])
			ends, stays := client, server
			if by == byTarget {
				ends, stays = server, client
			}
			sendHalf(t, ends, []byte("all"))
			wantAll(t, stays, []byte("all"))
			reset(ends)
			stay = append(stay, stays)
		}
	}
	for _, by := range []side{byClient, byTarget} {
		eventually(t, "resets of each "+by.String(), func() bool {
			return strings.Count(strings.Join(e.log.all(), ""), "by="+by.String()+" cause=reset") == 2
		})
	}
	for _, c := range stay { // the first Write may be taken, since nobody has told its side
		eventually(t, "the connection is cut", func() bool {
			_, err := c.Write([]byte("x"))
			return isReset(err)
		})
	}
}

func TestClientsAreTurnedAway(t *testing.T) {
	e := newEnv(t)
	at := e.names("a")
	for cause, m := range map[string]Map{
		"allow-from": {Listen: e.free(networkTCP), Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
		"allow-user": {Listen: e.free(networkUnix), Users: Users{uids: []int{os.Getuid() + 1}}},
		"max-rate":   {Listen: e.free(networkTCP), MaxRate: 1},
	} {
		m.Targets = []Endpoint{at}
		f := e.serve(&m)
		if cause == "max-rate" {
			e.answers(f.Addr(), "a")
		}
		c, err := e.tryDial(f.Addr())
		if err == nil {
			err = readToError(c)
			c.Close()
		}
		require.Error(t, err)
		e.logged("refused", "proxy", cause)
		require.EqualValues(t, 1, f.Stats().Refused)
	}
	for _, m := range []Map{
		{Listen: e.free(networkTCP), Sources: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		{Listen: e.free(networkUnix), Users: Users{uids: []int{os.Getuid()}}},
	} {
		m.Targets = []Endpoint{at}
		e.answers(e.serve(&m).Addr(), "a")
	}
}

// A map without a rate that is given one lets as many in at once as one that had it from the beginning.
func TestAMapThatIsGivenARateLetsABurstIn(t *testing.T) {
	before, after := &Map{}, &Map{MaxRate: 5}
	f := newForwarder(before, env{log: new(logLines).logger()})
	defer f.conns.cancel()
	admitted := func(m *Map) (cause string) { cause, _ = f.conns.admit(m); return cause }
	require.Empty(t, admitted(before))
	f.conns.limit(after)
	for range after.MaxRate {
		require.Empty(t, admitted(after))
	}
	f.conns.limit(before)
	for range 100 {
		require.Empty(t, admitted(before))
	}
}

func TestClientsWaitForRoom(t *testing.T) {
	e := newEnv(t)
	m := Map{Listen: e.free(networkTCP), Targets: []Endpoint{e.names("a")}, MaxConnections: 1, WhenFull: letWait}
	f := e.serve(&m)
	first := e.answers(f.Addr(), "a")
	second := e.dial(f.Addr())
	got := make(chan error, 1)
	go func() {
		_, err := second.Read(make([]byte, 1))
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("the second client is served: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	first.Close()
	require.NoError(t, <-got)
	third := e.dial(f.Addr()) // it waits until the end
	f.Close()
	require.Error(t, readToError(third))
	require.Zero(t, f.Stats().Refused)
}

func TestASocketHasTheRightsOfItsMap(t *testing.T) {
	e := newEnv(t)
	m := Map{Listen: e.free(networkUnix), Targets: []Endpoint{e.names("a")}, Socket: &unixsock.Rights{Mode: 0o640, UID: -1, GID: os.Getgid()}}
	f := e.serve(&m)
	mode := func() os.FileMode {
		info, err := os.Stat(m.Listen.Address)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	require.EqualValues(t, 0o640, mode())
	e.answers(m.Listen, "a")
	next := m
	next.Socket = &unixsock.Rights{Mode: 0o666, UID: -1, GID: -1}
	f.use(&next, time.Hour)
	require.EqualValues(t, 0o666, mode())
}

func TestKeepAliveIsTheMaps(t *testing.T) {
	e := newEnv(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	m := Map{Listen: e.free(networkTCP), Targets: []Endpoint{{networkTCP, ln.Addr().String()}}, KeepAlive: 77 * time.Second}
	f := e.serve(&m)
	e.dial(f.Addr())
	accept(t, ln)
	eventually(t, "both sides are kept alive", func() bool {
		for _, r := range f.conns.open() {
			return keepsAlive(t, r.client) == 77 && keepsAlive(t, r.target) == 77
		}
		return false
	})
}
