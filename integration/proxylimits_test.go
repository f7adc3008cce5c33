//go:build linux

package integration

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A map passes over a target that is down, lets in whom it is to, and cuts what is silent.
func TestAMapWithSeveralTargetsAndLimits(t *testing.T) {
	dir := shortDir(t)
	p := startConfigured(t, `
maps:
- listen: unix://`+dir+`/s
  targets: [unix://`+dir+`/dead, `+echo(t)+`]
  balance: roundrobin
  mode: 0666
  allow-user: [`+strconv.Itoa(os.Getuid())+`]
- listen: tcp://127.0.0.1:0
  target: unix://`+dir+`/s
  allow-from: [10.0.0.0/8]
- listen: tcp://127.0.0.1:0
  target: unix://`+dir+`/s
  idle-timeout: 20ms
`, 4)
	info, err := os.Stat(dir + "/s")
	require.NoError(t, err)
	require.EqualValues(t, 0o666, info.Mode().Perm())
	for range 6 { // three of them try the dead one first
		c := dialTo(t, "unix://"+dir+"/s")
		mustEcho(t, c, "hello")
		closeBothWays(t, c)
	}
	p.waitFor(regexp.MustCompile(`msg="a target is down" map=unix://\S+ target=unix://\S+/dead reason="no such file or directory"`), 1)
	wantRefused(t, "tcp", strings.TrimPrefix(p.listening[2], "tcp://"))
	p.waitFor(regexp.MustCompile(`end=refused .* cause=allow-from`), 1)
	c := dialTo(t, p.listening[3])
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes, want the end", n)
	}
	p.waitFor(regexp.MustCompile(`end=aborted .* by=proxy cause=idle-timeout`), 1)
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.status())
}
