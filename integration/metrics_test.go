//go:build linux

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/stretchr/testify/require"
)

// withDescriptors starts the program with a limit of descriptors that it cannot raise.
func withDescriptors(n int) option {
	return func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, n), c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}
}

// Clients of the metrics that keep their connections, send half a request, or read nothing, do not stop the maps.
func TestClientsOfMetricsStopNothing(t *testing.T) {
	const descriptors, clients = 64, 100
	socket := filepath.Join(shortDir(t), "m")
	for _, at := range []string{"unix:" + socket, fmt.Sprintf("127.0.0.1:%d", freePort(t))} {
		t.Run(at[:4], func(t *testing.T) {
			p := startProxyIn(t, fabric(t), []option{withDescriptors(descriptors)}, []string{"--metrics", at}, "tcp://127.0.0.1:0="+echo(t))
			network, address := "tcp", at
			if path, ok := strings.CutPrefix(at, "unix:"); ok {
				network, address = "unix", path
			}
			var all []net.Conn
			for i := range clients {
				c, err := net.Dial(network, address)
				if err != nil { // the backlog is full
					require.Greater(t, i, 16)
					break
				}
				defer c.Close()
				all = append(all, c)
				switch {
				case i < 80: // keeps its connection
					_, _ = c.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"))
				case i < 90:
					_, _ = c.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n"))
				}
			}
			begun := time.Now()
			c := p.dial(0)
			mustEcho(t, c, "served")
			closeBothWays(t, c)
			t.Logf("served after %v", time.Since(begun).Round(time.Millisecond))
			for _, c := range all {
				c.Close()
			}
			eventually(t, "an operator's turn", func() bool {
				r, err := metrics.Client(at).Get("http://proxy/readyz")
				if err != nil {
					return false
				}
				defer r.Body.Close()
				_, err = io.ReadAll(r.Body)
				return err == nil && r.StatusCode == http.StatusOK
			})
			p.signal(syscall.SIGTERM)
			require.Zero(t, p.status())
		})
	}
}

// A limit of connections that the limit of descriptors cannot carry is a warning, at the start and by check.
func TestTooFewDescriptorsAreAWarning(t *testing.T) {
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	c := &configured{file: file}
	for most, warns := range map[int]bool{100: false, 1000: true} {
		c.write(t, fmt.Sprintf("maps: [{listen: 'tcp://127.0.0.1:0', target: 'tcp://127.0.0.1:1', max-connections: %d}]", most))
		check := start(t, filepath.Join(programs, "sdp-proxy"), []string{"check", file}, withDescriptors(1024))
		require.Zero(t, check.status())
		serves := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--config", file}, withDescriptors(1024), withEnv(fabric(t)))
		serves.waitFor(readyLine, 1)
		for _, out := range []string{check.out.String(), serves.out.String()} {
			require.Equal(t, warns, strings.Contains(out, "take 2064 descriptors, and the limit is 1024"), out)
		}
	}
}
