//go:build linux

package integration

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/stretchr/testify/require"
)

// connectionLines returns the lines of connections that a proxy with --log json has written, once there are n.
func connectionLines(t *testing.T, p *proxy, n int) (lines []map[string]any) {
	t.Helper()
	eventually(t, "the connections are logged", func() bool {
		lines = nil
		for line := range strings.Lines(p.out.String()) {
			var fields map[string]any
			if !strings.HasSuffix(line, "\n") {
				continue // it is being written
			}
			require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
			if fields["msg"] == "connection" {
				lines = append(lines, fields)
			}
		}
		return len(lines) >= n
	})
	return lines
}

// Each connection has one line at its end, which says who ended it, how, and what it has moved.
func TestEachConnectionHasOneLineAtItsEnd(t *testing.T) {
	target := echo(t)
	socket := shortDir(t) + "/s"
	p := startProxy(t, fabric(t), []string{"--log", "json", "--max-connections", "1", "--drain-timeout", "10ms"},
		"unix://"+socket+"="+target, "tcp://127.0.0.1:0=sdp://localhost:1")
	want := func(n int, fields map[string]any) map[string]any {
		t.Helper()
		line := connectionLines(t, p, n)[n-1]
		for k, v := range fields {
			require.Equal(t, v, line[k], "%s of %v", k, line)
		}
		require.Contains(t, line, "time")
		require.Contains(t, line, "duration_ms")
		return line
	}
	a := dialTo(t, "unix://"+socket)
	mustEcho(t, a, "hello")
	wantRefused(t, "unix", socket)
	want(1, map[string]any{"level": "WARN", "end": "refused", "map": "unix://" + socket, "by": "proxy", "cause": "max-connections"})
	closeBothWays(t, a)
	line := want(2, map[string]any{"level": "INFO", "end": "closed", "by": "client", "cause": "end of file", "to_target": 5.0, "from_target": 5.0,
		"target": target, "client_by": "unix", "target_by": "tcp"})
	require.Contains(t, line, "connect_ms")
	require.Regexp(t, `^uid=\d+$`, line["client"])

	wantRefused(t, "tcp", strings.TrimPrefix(p.listening[1], "tcp://"))
	want(3, map[string]any{"level": "WARN", "end": "failed", "by": "target", "target": "sdp://localhost:1", "client_by": "tcp", "target_by": "sdp"})

	b := dialTo(t, "unix://"+socket)
	mustEcho(t, b, "hello")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.status())
	want(4, map[string]any{"level": "INFO", "end": "aborted", "by": "proxy", "cause": "the proxy ends"})
	require.Len(t, connectionLines(t, p, 4), 4)
}

// A reset is of the side that sent it.
func TestTheLineSaysWhichSideReset(t *testing.T) {
	accepted := make(chan *net.TCPConn, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c.(*net.TCPConn)
		}
	}()
	p := startPairWith(t, "tcp://"+ln.Addr().String(), "--log", "json")
	for n, by := range []string{"client", "target"} {
		c := dialTo(t, "tcp://"+net.JoinHostPort(p.host, p.port)).(*net.TCPConn)
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		target := <-accepted
		_, err = target.Read(make([]byte, 1))
		require.NoError(t, err)
		resets := map[string]*net.TCPConn{"client": c, "target": target}[by]
		require.NoError(t, resets.SetLinger(0))
		resets.Close()
		for _, side := range []*proxy{p.front, p.back} {
			line := connectionLines(t, side, n+1)[n]
			require.Equal(t, "aborted", line["end"], "%v", line)
			require.Equal(t, by, line["by"], "%v", line)
			require.Equal(t, "reset", line["cause"], "%v", line)
		}
		c.Close()
		target.Close()
	}
}

// A reader of the log that reads nothing holds up neither connections nor the end of the proxy.
func TestALogThatNobodyReads(t *testing.T) {
	target, dir := echo(t), shortDir(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	fd := int(w.Fd())
	require.NoError(t, syscall.SetNonblock(fd, true))
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	require.NoError(t, syscall.SetNonblock(fd, false))
	p := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--metrics", "unix:" + dir + "/m", "--map", "unix://" + dir + "/s=" + target},
		withEnv(fabric(t)), func(c *exec.Cmd) { c.Stderr = w })
	require.NoError(t, w.Close())
	eventually(t, "the proxy listens", func() bool {
		c, err := net.Dial("unix", dir+"/s")
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	for range 1200 {
		c := dialTo(t, "unix://"+dir+"/s")
		mustEcho(t, c, "hello")
		closeBothWays(t, c)
	}
	eventually(t, "all connections have ended, and lines were dropped", func() bool {
		r, err := metrics.Client("unix:" + dir + "/m").Get("http://proxy/metrics")
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return strings.Contains(string(text), `sdp_proxy_connections_open{map="unix://`+dir+`/s"} 0`) &&
			regexp.MustCompile(`\nsdp_proxy_log_dropped_total [1-9]`).Match(text)
	})
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.status())
}

// What is served to operators says what the proxy does, until its end.
func TestOperatorsAreServed(t *testing.T) {
	target, dir := echo(t), shortDir(t)
	address := "unix:" + dir + "/m"
	p := startProxy(t, fabric(t), []string{"--metrics", address, "--drain-timeout", "1h"}, "tcp://127.0.0.1:0=sdp://localhost:1", "unix://"+dir+"/s="+target)
	info, err := os.Stat(dir + "/m")
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	get := func(path string, status int) string {
		t.Helper()
		r, err := metrics.Client(address).Get("http://proxy" + path)
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, status, r.StatusCode, "%s: %s", path, text)
		return string(text)
	}
	get("/healthz", 200)
	get("/readyz", 200)
	get("/", 404)
	wantRefused(t, "tcp", strings.TrimPrefix(p.listening[0], "tcp://"))
	c := dialTo(t, "unix://"+dir+"/s")
	mustEcho(t, c, "hello")
	eventually(t, "the bytes are counted", func() bool {
		var s struct {
			Maps []struct {
				Map         string
				Open        int
				Connections []struct {
					Client   string
					ToTarget int64 `json:"to_target"`
				}
			}
		}
		require.NoError(t, json.Unmarshal([]byte(get("/connections", 200)), &s))
		require.Len(t, s.Maps, 2)
		require.Equal(t, "unix://"+dir+"/s", s.Maps[1].Map)
		return s.Maps[1].Open == 1 && len(s.Maps[1].Connections) == 1 && strings.HasPrefix(s.Maps[1].Connections[0].Client, "uid=")
	})
	text := get("/metrics", 200)
	require.Contains(t, text, "# TYPE sdp_proxy_connections_total counter\n")
	require.Contains(t, text, `sdp_proxy_connections_total{map="`+p.listening[0]+`",end="failed"} 1`+"\n")
	require.Contains(t, text, `sdp_proxy_connections_open{map="unix://`+dir+`/s"} 1`+"\n")
	require.Contains(t, text, `sdp_proxy_target_dials_total{map="unix://`+dir+`/s",target="`+target+`",result="connected"} 1`+"\n")
	require.Contains(t, text, `sdp_proxy_target_dials_total{map="`+p.listening[0]+`",target="sdp://localhost:1",result="failed"} 1`+"\n")
	require.Contains(t, text, `sdp_proxy_target_up{map="`+p.listening[0]+`",target="sdp://localhost:1"} 1`+"\n", "one failure is not three")
	require.Regexp(t, `\nsdp_proxy_target_dial_seconds_total\{map="unix://`+dir+`/s",target="`+target+`"\} 0\.0*[1-9]`, text)
	status := command(t, programs+"/sdp-proxy", "status", address)
	require.Regexp(t, `(?m)^unix://`+dir+`/s +`+target+` +1 +4096 +1 +0 +0 +0 `, status)
	require.Regexp(t, `(?m)^uid=\d+ +unix://`+dir+`/s +`+target, status)
	require.NotContains(t, status, "(down)")
	for range 2 {
		wantRefused(t, "tcp", strings.TrimPrefix(p.listening[0], "tcp://"))
	}
	require.Contains(t, command(t, programs+"/sdp-proxy", "status", address), " sdp://localhost:1 (down) ")
	refused(t, "status: no proxy answers at unix:"+dir+"/none: ", []string{"status", "unix:" + dir + "/none"})

	p.signal(syscall.SIGTERM)
	eventually(t, "it is not ready", func() bool {
		r, err := metrics.Client(address).Get("http://proxy/readyz")
		require.NoError(t, err)
		r.Body.Close()
		return r.StatusCode == 503
	})
	get("/healthz", 200)
	closeBothWays(t, c)
	require.Zero(t, p.status())
	_, err = os.Stat(dir + "/m")
	require.ErrorIs(t, err, os.ErrNotExist)
}
