//go:build linux

package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The files of docs/proxy.md are right for systemd's programs.
func TestProxyUnit(t *testing.T) {
	root := t.TempDir()
	for path, text := range documentedFiles(t, "proxy.md") {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+path), 0o755))
		require.NoError(t, os.WriteFile(root+path, []byte(strings.ReplaceAll(text, "/usr/local/bin", programs)), 0o644))
	}
	succeeds(t, "systemd-sysusers", "--root="+root)
	require.NotEmpty(t, inFile(t, root+"/etc/passwd", "sdp-proxy"))
	units := root + "/etc/systemd/system/sdp-proxy"
	require.Empty(t, succeeds(t, "systemd-analyze", "verify", units+".service", units+".socket"))
}

// The proxy speaks systemd's protocol: when it is ready, reads its file again, drains, and that it lives.
func TestTheServiceManagerIsTold(t *testing.T) {
	dir := shortDir(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: dir + "/notify"})
	require.NoError(t, err)
	defer manager.Close()
	require.NoError(t, manager.SetDeadline(time.Now().Add(testTimeout)))
	file := dir + "/proxy.yaml"
	require.NoError(t, os.WriteFile(file, []byte("maps:\n- listen: unix://"+dir+"/s\n  target: tcp://127.0.0.1:1\n"), 0o600))
	p := start(t, programs+"/sdp-proxy", []string{"--config", file}, withEnv(fabric(t), "NOTIFY_SOCKET="+dir+"/notify", "WATCHDOG_USEC=20000"))
	// next returns the next message but for WATCHDOG=1, of which at least one comes before the end.
	pings := 0
	next := func() string {
		t.Helper()
		for buf := make([]byte, 4096); ; {
			n, err := manager.Read(buf)
			require.NoError(t, err)
			if text := string(buf[:n]); text != "WATCHDOG=1" {
				return text
			}
			pings++
		}
	}
	require.Equal(t, "READY=1\nSTATUS=serving 1 maps", next())
	_, err = os.Stat(dir + "/s")
	require.NoError(t, err, "it is ready when it listens")
	p.signal(syscall.SIGHUP)
	require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=\d+$`, next())
	require.Equal(t, "READY=1\nSTATUS=serving 1 maps", next())
	require.NoError(t, os.WriteFile(file, []byte("maps: 7"), 0o600))
	p.signal(syscall.SIGHUP)
	require.Regexp(t, `^RELOADING=1\n`, next())
	require.Equal(t, "READY=1\nSTATUS=serving 1 maps", next(), "also if nothing is changed")
	for before := pings; pings == before; {
		n, err := manager.Read(make([]byte, 4096))
		require.NoError(t, err)
		require.Equal(t, len("WATCHDOG=1"), n)
		pings++
	}
	p.signal(syscall.SIGTERM)
	require.Equal(t, "STOPPING=1\nSTATUS=waiting for 0 connections", next())
	require.Zero(t, p.status())
}

// A service manager that reads none of its messages does not keep the proxy from ending.
func TestAServiceManagerThatDoesNotListen(t *testing.T) {
	dir := shortDir(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: dir + "/notify"})
	require.NoError(t, err)
	defer manager.Close()
	file := dir + "/proxy.yaml"
	require.NoError(t, os.WriteFile(file, []byte("maps:\n- listen: unix://"+dir+"/s\n  target: tcp://127.0.0.1:1\n"), 0o600))
	p := start(t, programs+"/sdp-proxy", []string{"--config", file}, withEnv(fabric(t), "NOTIFY_SOCKET="+dir+"/notify", "WATCHDOG_USEC=2000"))
	probe, err := net.Dial("unixgram", dir+"/notify")
	require.NoError(t, err)
	defer probe.Close()
	raw, err := probe.(*net.UnixConn).SyscallConn()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir + "/s") // it listens, and so it has begun to tell
		return err == nil
	}, testTimeout, time.Millisecond)
	for full := false; !full; { // beside its messages, until there is room for none
		require.NoError(t, raw.Write(func(fd uintptr) bool {
			full = syscall.Sendto(int(fd), []byte("probe"), syscall.MSG_DONTWAIT, nil) == syscall.EAGAIN
			return true
		}))
	}
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.status())
}
