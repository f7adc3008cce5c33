package proxy

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// staleSocket leaves the file of a listener that no longer exists.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix(networkUnix, &net.UnixAddr{Net: networkUnix, Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
}

func TestStaleUnixSocketIsReplaced(t *testing.T) {
	e := newEnv(t)
	path := filepath.Join(e.dir, "s")
	staleSocket(t, path)
	ln, err := listen(context.Background(), &Map{Listen: Endpoint{networkUnix, path}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial(networkUnix, path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	ln.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close the file is still there: %v", err)
	}
}

func TestListenErrorsSayWhatToDo(t *testing.T) {
	e := newEnv(t)
	_, liveTCP := e.serverOn(networkTCP)
	_, liveUnix := e.serverOn(networkUnix)
	_, liveSDP := e.serverOn(networkSDP)
	file := filepath.Join(e.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at    Endpoint
		cause error // nil for any
		want  string
	}{
		{liveTCP, syscall.EADDRINUSE, "stop it or choose another address"},
		{liveUnix, syscall.EADDRINUSE, "stop it or choose another address"},
		{liveSDP, syscall.EADDRINUSE, "stop it or choose another address"},
		{Endpoint{networkUnix, file}, nil, "not a socket; remove it or choose another path"},
		{Endpoint{networkUnix, filepath.Join(e.dir, "none", "s")}, os.ErrNotExist, "make the directory first"},
		{Endpoint{networkTCP, "192.0.2.1:0"}, syscall.EADDRNOTAVAIL, "no such address"},
	} {
		_, err := open(context.Background(), &Map{Listen: c.at, Targets: []Endpoint{liveTCP}}, env{fabric: e.fabric, log: e.log.logger()})
		if err == nil {
			t.Errorf("%v: no error", c.at)
			continue
		}
		if c.cause != nil && !errors.Is(err, c.cause) {
			t.Errorf("%v: %v is not %v", c.at, err, c.cause)
		}
		if s := err.Error(); !strings.Contains(s, c.at.String()) || !strings.Contains(s, c.want) || strings.Contains(s, "\n") {
			t.Errorf("%v: %q, want the endpoint and %q, on one line", c.at, s, c.want)
		}
	}
	// The socket that was in use still works.
	c, err := net.Dial(networkUnix, liveUnix.Address)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestPermissionErrorsSayWhatToDo(t *testing.T) {
	for e, want := range map[Endpoint]string{
		{networkTCP, "h:1"}: "ports below 1024 need privileges",
		{networkSDP, "h:1"}: "this user may not create it",
		{networkUnix, "/s"}: "this user may not create it",
	} {
		err := explainListen(e, &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)})
		if !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", e, err, want)
		}
	}
}

func TestOfManyThatFindAStaleSocketOneListens(t *testing.T) {
	e := newEnv(t)
	path := filepath.Join(e.dir, "s")
	for range 20 {
		staleSocket(t, path)
		var wg sync.WaitGroup
		var listening atomic.Int64
		lns := make(chan net.Listener, 4)
		for range cap(lns) {
			wg.Go(func() {
				ln, err := listen(context.Background(), &Map{Listen: Endpoint{networkUnix, path}}, nil, nil)
				switch {
				case err == nil:
					listening.Add(1)
					lns <- ln
				case !errors.Is(err, syscall.EADDRINUSE):
					t.Errorf("listen: %v", err)
				}
			})
		}
		wg.Wait()
		if n := listening.Load(); n != 1 {
			t.Fatalf("%d listen on one path", n)
		}
		(<-lns).Close()
	}
}

func TestCloseLeavesAnothersSocketAlone(t *testing.T) {
	e := newEnv(t)
	path := filepath.Join(e.dir, "s")
	ours, err := listen(context.Background(), &Map{Listen: Endpoint{networkUnix, path}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	os.Rename(path, path+".old") // keeps the inode, so that it is not reused
	theirs, err := listen(context.Background(), &Map{Listen: Endpoint{networkUnix, path}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's file: %v", err)
	}
}
