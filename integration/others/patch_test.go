package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDialAndListenAreHookedOnTheirFirstLine(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "src", "net", "dial.go"))
	require.NoError(t, err)
	patched, err := patchDial(text)
	require.NoError(t, err)
	require.Equal(t, strings.Count(string(text), "\n"), strings.Count(string(patched), "\n"))
	for _, want := range []string{
		"address string) (Conn, error) { if NtbnetDial != nil { if v, err, ok := NtbnetDial(d, ctx, network, address); ok { return v, err } };\n",
		"address string) (Listener, error) { if NtbnetListen != nil { if v, err, ok := NtbnetListen(lc, ctx, network, address); ok { return v, err } };\n",
	} {
		require.Equal(t, 1, strings.Count(string(patched), want), want)
	}

	_, err = patchDial([]byte(strings.ReplaceAll(string(text), "DialContext", "DialAnother")))
	require.EqualError(t, err, "there is no method Dialer.DialContext")
}

func TestAssertionsOfTCPConnAskForTheMethod(t *testing.T) {
	tests := []struct{ from, to string }{
		{`c.(*net.TCPConn).CloseWrite()`, `c.(interface{ CloseWrite() error }).CloseWrite()`},
		{`f(c.(*net.TCPConn).SetLinger(0), d.(*net.TCPConn).CloseRead)`,
			`f(c.(interface{ SetLinger(int) error }).SetLinger(0), d.(interface{ CloseRead() error }).CloseRead)`},
		{`c.(*net.TCPConn).File()`, ""},
		{`f(c.(*net.TCPConn))`, ""},
		{`c.(*tcp.TCPConn).CloseWrite()`, ""},
		{`c.(net.TCPConn).CloseWrite()`, ""},
		{`c.(*net.UnixConn).CloseWrite()`, ""},
	}
	wrap := func(s string) string { return "package p\n\nfunc f() {\n\t" + s + "\n}\n" }
	for _, tt := range tests {
		got, err := patchAssertions([]byte(wrap(tt.from)))
		require.NoError(t, err)
		if tt.to == "" {
			require.Nil(t, got, tt.from)
		} else {
			require.Equal(t, wrap(tt.to), string(got))
		}
	}
	_, err := patchAssertions([]byte("pakcage p"))
	require.Error(t, err)
}
