package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDialAndListenAreHookedOnTheirFirstLine(t *testing.T) {
	root, err := output(t.Context(), "", "go", "env", "GOROOT")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "src", "net", "dial.go"))
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

func TestTCPConnBecomesAnInterface(t *testing.T) {
	tests := []struct{ from, to string }{
		{"func f() { c.(*net.TCPConn).CloseWrite() }", "func f() { c.(net.NtbnetTCPConn).CloseWrite() }"},
		{"func f(c, d *net.TCPConn) *net.TCPConn", "func f(c, d net.NtbnetTCPConn) net.NtbnetTCPConn"},
		{"type t struct { c *net.TCPConn }", "type t struct { c net.NtbnetTCPConn }"},
		{"type t struct { *net.TCPConn; c *net.TCPConn }\n\ntype u struct{ *net.TCPConn }",
			"type t struct { TCPConn; c net.NtbnetTCPConn }\n\ntype u struct{ TCPConn }\n\ntype TCPConn = net.NtbnetTCPConn"},
		{"func f(ln *net.TCPListener) { ln.(*net.TCPListener).File() }", "func f(ln *net.TCPListener) { ln.(net.NtbnetTCPListener).File() }"},
		{"func f(net.TCPConn, *net.UnixConn, *tcp.TCPConn, *net.TCPListener)", ""},
	}
	for _, tt := range tests {
		got, err := patchTypes([]byte("package p\n\n" + tt.from + "\n"))
		require.NoError(t, err)
		if tt.to == "" {
			require.Nil(t, got, tt.from)
		} else {
			require.Equal(t, "package p\n\n"+tt.to+"\n", string(got))
		}
	}
	_, err := patchTypes([]byte("pakcage p"))
	require.Error(t, err)
}
