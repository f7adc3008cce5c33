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

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbtest"
)

// attachments returns the ends of a bridge: one dials a socket, the other one accepts.
func attachments(t *testing.T, o Options) (a, b ntb.Attachment) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "cable"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	a = Attach(func(ctx context.Context) (*net.UnixConn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", ln.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.UnixConn), nil
	}, o)
	b = Attach(func(ctx context.Context) (*net.UnixConn, error) {
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
	files, maps := openFiles(t), mappings(t)
	ntbtest.RunAttachments(t, func(t *testing.T) (a, b ntb.Attachment) { return attachments(t, Options{Window: 4 << 10}) })
	if n, m := openFiles(t), mappings(t); n > files || m > maps {
		t.Errorf("%d files and %d mappings, before %d and %d", n, m, files, maps)
	}
}

func TestConformance(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) { return pair(t, Options{Window: 1 << 20}) })
}
