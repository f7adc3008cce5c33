//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
)

// attachments returns the ends of a bridge: one dials a socket, the other one accepts.
func attachments(t *testing.T, o Options) (a, b ntb.Attachment) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "cable"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	a = Attach(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", ln.Addr().String())
	}, o)
	b = Attach(func(ctx context.Context) (net.Conn, error) {
		defer context.AfterFunc(ctx, func() { ln.SetDeadline(time.Unix(1, 0)) })()
		for {
			c, err := ln.AcceptUnix()
			if err == nil {
				return c, nil
			}
			ln.SetDeadline(time.Time{})
			if ctx.Err() != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
				return nil, err
			}
		}
	}, o)
	return a, b
}

func TestSessions(t *testing.T) {
	startPoller(t)
	files, maps := openFiles(t), mappings(t)
	ntbtest.RunAttachments(t, func(t *testing.T) (a, b ntb.Attachment) { return attachments(t, Options{Window: 4 << 10}) })
	settled(t, files)
	if n := mappings(t); n > maps {
		t.Errorf("%d mappings, before %d", n, maps)
	}
}

func TestConformance(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) { return pair(t, Options{Window: 1 << 20}) })
}
