//go:build linux

package integration

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// loopLine matches the only line that a proxy writes when it finds a loop.
var loopLine = regexp.MustCompile(`^sdp-proxy: map (\S+) leads back to itself(?: through (.*))?, so that each connection would make more of them without end; choose another target\n$`)

// freeAddress returns an address of the loopback network that no other test has.
func freeAddress() string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250), 20000+rand.IntN(10000))
}

// freeEverywhere returns a port that is free on all addresses of this machine, and
// that no dial takes for its own endpoint.
func freeEverywhere(t *testing.T) (port string) {
	t.Helper()
	for range 1000 {
		port = fmt.Sprint(20000 + rand.IntN(10000))
		if ln, err := net.Listen("tcp", ":"+port); err == nil {
			ln.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// ownAddress returns an address of this machine that is not loopback.
func ownAddress(t *testing.T) (address string, ok bool) {
	t.Helper()
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String(), true
		}
	}
	return "", false
}

func mapArgs(maps []string) []string {
	var args []string
	for _, m := range maps {
		args = append(args, "--map", m)
	}
	return args
}

// wantLoop runs sdp-proxy, which must refuse the first of its maps with one line.
func wantLoop(t *testing.T, fabric string, maps ...string) (through string) {
	t.Helper()
	p := start(t, filepath.Join(programs, "sdp-proxy"), mapArgs(maps), withEnv(fabric))
	eventually(t, "it ends or serves", func() bool { return p.over() || strings.Contains(p.out.String(), "listening") })
	if !p.over() {
		t.Fatalf("%q is served", maps)
	}
	require.Equal(t, 2, p.status(), maps)
	m := loopLine.FindStringSubmatch(p.out.String())
	require.NotNil(t, m, "%q: %s", maps, p.out.String())
	require.Equal(t, maps[0], m[1])
	return m[2]
}

func TestMapThatLeadsBackToItselfIsRefused(t *testing.T) {
	port, dir := freeEverywhere(t), shortDir(t)
	require.NoError(t, os.Symlink(dir, dir+"/link"))
	a, b, c := freeAddress(), freeAddress(), freeAddress()
	socket := "unix://" + dir + "/s"
	cases := []struct {
		maps    []string
		through string
	}{
		{[]string{"tcp://:" + port + "=tcp://127.0.0.1:" + port}, ""},
		{[]string{"tcp://:" + port + "=tcp://localhost:" + port}, ""},
		{[]string{"tcp://:" + port + "=tcp://127.1.2.3:" + port}, ""},
		{[]string{"tcp://127.0.0.1:" + port + "=tcp://:" + port}, ""},
		{[]string{"tcp://127.0.0.1:" + port + "=tcp://0.0.0.0:" + port}, ""},
		{[]string{"tcp://localhost:" + port + "=tcp://127.0.0.1:" + port}, ""},
		{[]string{"tcp://0.0.0.0:" + port + "=tcp://localhost:" + port}, ""},
		{[]string{socket + "=unix://" + dir + "/link/s"}, ""},
		{[]string{"sdp://:7000=sdp://localhost:7000"}, ""},
		{[]string{"sdp://localhost:7000=sdp://127.0.0.1:7000"}, ""},
		{[]string{"tcp://" + a + "=tcp://" + b, "tcp://" + b + "=tcp://" + a}, "tcp://" + b + "=tcp://" + a},
		{
			[]string{"tcp://" + a + "=" + socket, "sdp://:7000=tcp://" + a, socket + "=sdp://localhost:7000"},
			socket + "=sdp://localhost:7000 and sdp://:7000=tcp://" + a,
		},
		{
			[]string{"tcp://" + a + "=unix://@" + port, "tcp://" + c + "=tcp://" + b, "unix://@" + port + "=tcp://" + a},
			"unix://@" + port + "=tcp://" + a,
		},
	}
	if ln, err := net.Listen("tcp", "[::1]:0"); err == nil {
		ln.Close()
		cases = append(cases, []struct {
			maps    []string
			through string
		}{
			{[]string{"tcp://:" + port + "=tcp://[::1]:" + port}, ""},
			{[]string{"tcp://[::1]:" + port + "=tcp://[::]:" + port}, ""},
			{[]string{"tcp://127.0.0.1:" + port + "=tcp://[::ffff:127.0.0.1]:" + port}, ""},
		}...)
	}
	if own, ok := ownAddress(t); ok {
		cases = append(cases, struct {
			maps    []string
			through string
		}{[]string{"tcp://:" + port + "=tcp://" + own + ":" + port}, ""})
	}
	for _, c := range cases {
		t.Run(strings.Join(c.maps, " "), func(t *testing.T) {
			require.Equal(t, c.through, wantLoop(t, fabric(t), c.maps...))
		})
	}
	_, err := os.Lstat(dir + "/s")
	require.ErrorIs(t, err, os.ErrNotExist, "a socket is left behind")
}

// A map that only seems to lead back is served.
func TestMapThatLeadsElsewhereIsServed(t *testing.T) {
	port, dir := freeEverywhere(t), shortDir(t)
	a, b := freeAddress(), freeAddress()
	for _, maps := range [][]string{
		{"tcp://127.0.0.1:" + port + "=tcp://127.0.0.2:" + port},
		{"tcp://:" + port + "=tcp://192.0.2.1:" + port},
		{"tcp://127.0.0.1:" + port + "=sdp://localhost:" + port, "sdp://:7001=tcp://127.0.0.2:" + port},
		{"tcp://" + a + "=tcp://" + b, "tcp://" + b + "=tcp://192.0.2.1:1"},
		{"unix://" + dir + "/s=unix://" + dir + "/t", "unix://@" + a + "=unix://s"},
		{"tcp://127.0.0.1:" + port + "=tcp://nowhere.invalid:" + port},
	} {
		t.Run(strings.Join(maps, " "), func(t *testing.T) {
			startProxy(t, fabric(t), nil, maps...).stop()
		})
	}
}

// Proxies do not know each other's maps. The limit of the first to reach it ends the loop.
func TestLoopThroughAnotherProxyEndsAtTheLimit(t *testing.T) {
	const limit = 50
	name, a := fabric(t), freeAddress()
	flags := []string{"--max-connections", fmt.Sprint(limit)}
	first := startProxy(t, name, flags, "tcp://"+a+"=sdp://localhost:7000")
	second := startProxy(t, name, flags, "sdp://:7000=tcp://"+a)
	client := first.dial(0)
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	client.Close()
	c := first.stop() // waits until all connections have ended
	require.EqualValues(t, limit, c.total)
	require.EqualValues(t, 1, c.refused)
	require.EqualValues(t, limit, second.stop().total)
}
