package sdp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// A bubble's clock stands still while anything runs. So no wait may poll it for ever.
func TestHTTPInABubble(t *testing.T) {
	name := "mem:" + fabrictest.Name(t)
	synctest.Test(t, func(t *testing.T) {
		fabric, err := Open(name)
		require.NoError(t, err)
		ln, err := fabric.Listen("sdp", ":80")
		require.NoError(t, err)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			io.Copy(w, r.Body)
		})}
		served := make(chan error, 1)
		go func() { served <- server.Serve(ln) }()
		transport := &http.Transport{DialContext: fabric.DialContext}
		client := &http.Client{Transport: transport}
		body := strings.Repeat("body", 100_000)
		start := time.Now()
		for range 3 {
			r, err := client.Post("http://127.0.0.1/", "text/plain", strings.NewReader(body))
			require.NoError(t, err)
			got, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.NoError(t, r.Body.Close())
			require.True(t, string(got) == body)
		}
		require.Equal(t, 3*time.Hour, time.Since(start))
		client.Timeout = time.Minute
		_, err = client.Get("http://127.0.0.1/")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		transport.CloseIdleConnections()
		require.NoError(t, server.Shutdown(t.Context()))
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		require.NoError(t, fabric.Close())
	})
}

// The deadline of a Read that spins before it sleeps passes.
func TestDeadlineInABubble(t *testing.T) {
	name := "mem:" + fabrictest.Name(t) + "?spin=1ms"
	synctest.Test(t, func(t *testing.T) {
		fabric, err := Open(name)
		require.NoError(t, err)
		ln, err := fabric.Listen("sdp", ":1")
		require.NoError(t, err)
		c, err := fabric.Dial("sdp", "localhost:1")
		require.NoError(t, err)
		for range 20 {
			start := time.Now()
			c.SetReadDeadline(start.Add(time.Hour))
			_, err = c.Read(make([]byte, 8))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, time.Hour, time.Since(start))
		}
		require.NoError(t, c.Close())
		require.NoError(t, ln.Close())
		require.NoError(t, fabric.Close())
	})
}

// A wait for another process keeps a bubble's clock from going on.
func TestSharedMemoryIsRefusedInABubble(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	fabric, err := Open(name)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no shared memory here")
	}
	require.NoError(t, err)
	defer fabric.Close()
	t.Setenv("SDP_FABRIC", name)
	synctest.Test(t, func(t *testing.T) {
		_, err := Listen("sdp", ":0")
		require.ErrorIs(t, err, errors.ErrUnsupported)
		ln, err := Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		c, err := Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		require.IsType(t, (*net.TCPConn)(nil), c)
		require.NoError(t, c.Close())
		require.NoError(t, ln.Close())
		_, err = Open(name)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "synctest")
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		_, err = fabric.Listen("sdp", ":0")
		require.ErrorIs(t, err, errors.ErrUnsupported)
		_, err = fabric.Dial("sdp", "localhost:1")
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

// A dial without a limit of its own ends as TCP's does.
func TestADialEndsAfterTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, "ring:two-minutes?node=1&nodes=3&backend=mem")
		ln, err := (&ListenConfig{Fabric: f, Backlog: 1}).Listen(t.Context(), "sdp", ":80")
		require.NoError(t, err)
		for _, address := range []string{":80", "node2:80"} { // the backlog is full; the node is not there
			var end error
			begun := time.Now()
			for end == nil {
				var c net.Conn
				begun = time.Now()
				if c, end = f.Dial("sdp", address); end == nil {
					defer c.Close()
				}
			}
			require.ErrorIs(t, end, context.DeadlineExceeded)
			took := time.Since(begun)
			require.True(t, took >= connectTimeout && took < connectTimeout+time.Second, took)
		}
		require.NoError(t, ln.Close())
		require.NoError(t, f.Close())
	})
}
