//go:build linux

package integration

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Clients of both networks, which are other processes, reach one map, before and after a reload.
func TestAMapServesBothNetworks(t *testing.T) {
	fabric, target := fabric(t), echo(t)
	text := func(target string) string {
		return "maps: [{listen: 'tcp+sdp://127.0.0.1:0', target: '" + target + "'}]\n"
	}
	c := &configured{file: filepath.Join(t.TempDir(), "proxy.yaml")}
	c.write(t, text(target))
	c.proxy = &proxy{process: start(t, filepath.Join(programs, "sdp-proxy"), []string{"--config", c.file}, withEnv(fabric))}
	at, ok := strings.CutPrefix(c.waitFor(readyLine, 1)[0][1], "tcp+sdp://")
	require.True(t, ok)
	_, port, err := net.SplitHostPort(at)
	require.NoError(t, err)
	beside := startProxy(t, fabric, nil, "unix://"+shortDir(t)+"/s=sdp://localhost:"+port)

	tcp, sdp := dialTo(t, "tcp://"+at), beside.dial(0)
	mustEcho(t, tcp, "by TCP")
	mustEcho(t, sdp, "by SDP")
	c.reload(text(echo(t)), 1)
	mustEcho(t, tcp, "still")
	mustEcho(t, sdp, "still")
	mustEcho(t, dialTo(t, "tcp://"+at), "new")
	mustEcho(t, beside.dial(0), "new")

	c.write(t, "maps: [{listen: 'tcp+sdp://127.0.0.1:0', target: 'sdp://localhost:"+port+"'}]\n")
	c.signal(syscall.SIGHUP)
	require.Contains(t, c.waitFor(notChanged, 1)[0][1], "leads back to itself")
	mustEcho(t, tcp, "still")
}
