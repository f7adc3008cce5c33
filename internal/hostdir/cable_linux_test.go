package hostdir

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/stretchr/testify/require"
)

func TestCableToAnotherProcess(t *testing.T) {
	base := newBase(t)
	d := openDir(t, base)
	p, number, _ := startHolder(t, base)
	c, err := d.Connect(t.Context(), number, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Errorf("got %q, %v", b, err)
	}
	p.kill()
	if _, err := d.Connect(t.Context(), number, nil); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("connect to a dead process: %v, want EHOSTUNREACH", err)
	}
	// The dead process left nothing that is in the way of its successor.
	n, err := d.ClaimProcess()
	if err != nil || n != number {
		t.Fatalf("process %d, %v, want %d", n, err, number)
	}
	l, err := d.Listen(n)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestConnectSaysWhyItCannot(t *testing.T) {
	base := newBase(t)
	d, own := openMember(t, base)
	_, err := d.Connect(t.Context(), own, nil)
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "starting or ending") {
		t.Errorf("process that does not listen: %v", err)
	}
	if _, err := d.Connect(t.Context(), 77, nil); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("no process: %v, want EHOSTUNREACH", err)
	}
	for _, n := range []int{-1, 0, maxProcess + 1} {
		if _, err := d.Connect(t.Context(), n, nil); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("process %d: %v, want EINVAL", n, err)
		}
	}
	if _, err := d.Listen(own + 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("listen as another process: %v, want EINVAL", err)
	}
	l, err := d.Listen(own)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := d.Listen(own); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen twice: %v, want EADDRINUSE", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Connect(ctx, own, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("connect with a context that has ended: %v", err)
	}
}

func TestConnectWaitsWhileTheQueueOfCablesIsFull(t *testing.T) {
	base := newBase(t)
	d, own := openMember(t, base)
	l, err := d.Listen(own)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// To listen again with a shorter queue is allowed.
	if err := l.Control(func(fd int) error { return syscall.Listen(fd, 0) }); err != nil {
		t.Fatal(err)
	}
	first, err := d.Connect(t.Context(), own, nil) // fills the queue
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	done := make(chan error, 1)
	go func() {
		c, err := d.Connect(t.Context(), own, nil)
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	for range 2 {
		c, err := d.Accept(l)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if err := <-done; err != nil {
		t.Errorf("connect to a full queue that is emptied: %v", err)
	}

	second, err := d.Connect(t.Context(), own, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, err := d.Connect(ctx, own, nil); done <- err }()
	cancel()
	if err := <-done; err == nil {
		t.Error("connect to a full queue succeeds after its context has ended")
	}
}

func TestStrangersAreNotAccepted(t *testing.T) {
	exe, attr := asNobody(t)
	base := newBase(t)
	d, own := openMember(t, base)
	l, err := d.Listen(own)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if got := start(t, exe, "dial", filepath.Join(d.Path(), d.cable), attr).line(t); !strings.Contains(got, syscall.EACCES.Error()) {
		t.Errorf("the stranger %s, want that the kernel refuses it", got)
	}
	// A socket that strangers do reach.
	open := filepath.Join(filepath.Dir(exe), "open")
	if l, err = unixsock.ListenAs(t.Context(), open, unixsock.Rights{UID: -1, GID: -1}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan *unixsock.Conn, 1)
	go func() {
		_, err := d.Accept(l)
		if forbidden := new(ForbiddenError); !errors.As(err, &forbidden) {
			t.Errorf("the stranger: %v, want a ForbiddenError", err)
		}
		c, err := d.Accept(l)
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if got := start(t, exe, "dial", open, attr).line(t); got != `got "", <nil>` {
		t.Errorf("the stranger %s, want the end of the cable", got)
	}
	c, err := net.Dial("unix", open)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other := <-accepted
	if other == nil {
		t.Fatal("nothing was accepted after the stranger")
	}
	defer other.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
		t.Errorf("the accepted cable is not this user's: %v", err)
	}
}

func TestACableToAStrangerIsRefused(t *testing.T) {
	exe, attr := asNobody(t)
	d, own := openMember(t, newBase(t))
	shared := filepath.Join(filepath.Dir(exe), "shared")
	if err := os.Mkdir(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := start(t, exe, "listen", filepath.Join(shared, "socket"), attr).line(t); got != "ready" {
		t.Fatal(got)
	}
	// As if it had got into the directory.
	name := cablePrefix + strconv.Itoa(own) + "-" + newID()
	if err := os.Rename(filepath.Join(shared, "socket"), filepath.Join(d.Path(), name)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Connect(t.Context(), own, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to another user's socket: %v, want ECONNREFUSED", err)
	}
	if err := os.Chown(filepath.Join(d.Path(), name), 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Connect(t.Context(), own, nil); !errors.Is(err, syscall.EACCES) {
		t.Errorf("connect: %v, want EACCES", err)
	}
}

// A process that must be of certain users, and is not, is not waited for.
func TestACableToAnotherUserIsNotWaitedFor(t *testing.T) {
	base := newBase(t)
	d, own := openMember(t, base)
	l, err := d.Listen(own)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, l.Control(func(fd int) error { return syscall.Listen(fd, 0) }))
	first, err := d.Connect(t.Context(), own, nil) // fills the queue
	require.NoError(t, err)
	defer first.Close()

	uid := os.Geteuid()
	others := []int{uid + 1, uid + 2}
	_, err = d.Connect(t.Context(), own, others)
	require.ErrorIs(t, err, ErrOtherUser)
	_, err = d.Cables(own, others)
	require.ErrorIs(t, err, ErrOtherUser)
	name, err := d.Cables(own, append(others, uid))
	require.NoError(t, err)
	require.Equal(t, d.cable, name)
	c, err := d.Accept(l)
	require.NoError(t, err)
	c.Close()
	c, err = d.Connect(t.Context(), own, append(others, uid))
	require.NoError(t, err)
	c.Close()
	if uid != 0 {
		return
	}
	// Whose the file is counts, and who listens there.
	require.NoError(t, os.Chown(filepath.Join(base, "default", d.cable), uid+1, -1))
	_, err = d.Connect(t.Context(), own, []int{uid})
	require.Error(t, err)
	shared := filepath.Join(t.TempDir(), "shared")
	m, err := Open(At(shared, 0, "0"), true)
	require.NoError(t, err)
	defer m.Close()
	own, err = m.ClaimProcess()
	require.NoError(t, err)
	ml, err := m.Listen(own)
	require.NoError(t, err)
	defer ml.Close()
	require.NoError(t, os.Chown(filepath.Join(shared, m.cable), uid+1, -1))
	_, err = m.Connect(t.Context(), own, []int{uid + 1})
	require.ErrorIs(t, err, ErrOtherUser)
}

// Of two processes that have a number, one after the other, each has cables of its own.
func TestCablesIdentifyAProcess(t *testing.T) {
	base := newBase(t)
	looks, _ := openMember(t, base)
	var names [2]string
	for i := range names {
		d, n := openMember(t, base)
		require.Equal(t, 2, n)
		name, err := looks.Cables(n, nil)
		require.NoError(t, err)
		require.Empty(t, name)
		l, err := d.Listen(n)
		require.NoError(t, err)
		names[i], err = looks.Cables(n, nil)
		require.NoError(t, err)
		require.Equal(t, d.cable, names[i])
		require.NoError(t, l.Close())
		require.NoError(t, d.Close())
	}
	require.NotEqual(t, names[0], names[1])
}
