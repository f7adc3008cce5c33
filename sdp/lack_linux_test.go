package sdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
)

// Variables that make the test binary a process with a lack of something.
const (
	lackVariable    = "SDP_TEST_LACK"
	addressVariable = "SDP_TEST_ADDRESS" // of a plain TCP server
)

// lackForbidden is what such a process prints if it may not make its lack.
const lackForbidden = "forbidden"

func init() {
	kind := os.Getenv(lackVariable)
	if kind == "" {
		return
	}
	err := playLack(kind, os.Getenv(addressVariable))
	switch {
	case err == nil:
		fmt.Println("ok")
	case errors.Is(err, errLackForbidden):
		fmt.Println(lackForbidden, err)
	default:
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

var errLackForbidden = errors.New("the system forbids the lack")

// lack is something that a process lacks: what imposes it, and ends it.
type lack struct {
	errno      syscall.Errno
	begin, end func() error
}

// limited returns a lack of a resource that is limited to n.
func limited(errno syscall.Errno, resource int, n uint64) lack {
	var usual unix.Rlimit
	err := unix.Getrlimit(resource, &usual)
	return lack{errno,
		func() error {
			return errors.Join(err, unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: usual.Max}))
		},
		func() error { return unix.Setrlimit(resource, &usual) }}
}

// mounted returns a lack of a /tmp, and no /run/user, with flags and options that are changed in
// the end.
func mounted(errno syscall.Errno, flags uintptr, options string, populated bool) lack {
	mount := func(at string, flags uintptr, options string) error {
		if err := unix.Mount("tmpfs", at, "tmpfs", flags, options); err != nil {
			return fmt.Errorf("%w: mount %s: %w", errLackForbidden, at, err)
		}
		return nil
	}
	return lack{errno,
		func() error {
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("%w: %w", errLackForbidden, err)
			}
			if _, err := os.Stat("/run/user"); err == nil {
				if err := mount("/run/user", 0, ""); err != nil {
					return err
				}
			}
			if err := mount("/tmp", 0, "mode=1777"); err != nil {
				return err
			}
			if populated {
				if err := os.Mkdir(hostdir.Find(), 0o700); err != nil {
					return err
				}
			}
			return mount("/tmp", flags|unix.MS_REMOUNT, options)
		},
		func() error { return mount("/tmp", unix.MS_REMOUNT, "nr_inodes=1000") }}
}

// playLack dials and listens on network "tcp" while something is lacking, and afterwards.
func playLack(kind, address string) error {
	if c, err := net.Dial("tcp", address); err != nil { // what package net asks first, it asks once
		return err
	} else {
		c.Close()
	}
	switch kind {
	case "files":
		return playFewFiles(address)
	case "size":
		return limited(unix.EFBIG, unix.RLIMIT_FSIZE, 0).play(address)
	case "full":
		return mounted(unix.ENOSPC, 0, "nr_inodes=1", false).play(address)
	case "readonly":
		return mounted(unix.EROFS, unix.MS_RDONLY, "", false).play(address)
	case "readonly, populated":
		return mounted(unix.EROFS, unix.MS_RDONLY, "", true).play(address)
	}
	return fmt.Errorf("no lack %q", kind)
}

func (l lack) play(address string) error {
	if err := l.begin(); err != nil {
		return err
	}
	for _, err := range []error{second(Listen(Network, ":0")), second(Dial(Network, "localhost:1"))} {
		if !errors.Is(err, l.errno) {
			return fmt.Errorf("network sdp: got %w, want %w", err, l.errno)
		}
	}
	for range 2 {
		c, err := Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, ok := c.(*net.TCPConn); !ok {
			return fmt.Errorf("dialled a %T", c)
		}
	}
	ln, err := Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	if err := meet(ln); err != nil {
		return err
	}
	chooses := ListenConfig{Allow: func(Peer) error { return nil }}
	if err := second(chooses.Listen(context.Background(), "tcp", "127.0.0.1:0")); !errors.Is(err, l.errno) {
		return fmt.Errorf("a listener that chooses users: got %w, want %w", err, l.errno)
	}
	if got, want := DefaultStats().Networks, (NetworkStats{DialNoFabric: 3, ListenTCPOnly: 1}); got != want {
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	if err := l.end(); err != nil {
		return err
	}
	return joins()
}

func second[T any](_ T, err error) error { return err }

// meet has a dial reach a listener by TCP.
func meet(ln net.Listener) error {
	c, err := Dial("tcp", ln.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := ln.Accept()
	if err != nil {
		return err
	}
	defer s.Close()
	for _, c := range []net.Conn{c, s} {
		if _, ok := c.(*net.TCPConn); !ok {
			return fmt.Errorf("a connection is a %T", c)
		}
	}
	return nil
}

// joins waits until a listener of network "tcp" is reached by SDP.
func joins() error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ln, err := Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		c, err := Dial("tcp", ln.Addr().String())
		if err == nil {
			c.Close()
		}
		ln.Close()
		if _, ok := c.(*Conn); ok {
			return nil
		}
	}
	return errors.New("the fabric is not joined when the lack has ended")
}

// playFewFiles dials, and listens, with 1, 2, … descriptors left, until the fabric is joined. One is
// what TCP needs for a dial.
func playFewFiles(address string) error {
	free, err := unix.Dup(0)
	if err != nil {
		return err
	}
	unix.Close(free)
	joined := false
	for n := uint64(1); !joined && n < 100; n++ {
		l := limited(unix.EMFILE, unix.RLIMIT_NOFILE, uint64(free)+n)
		if err := l.begin(); err != nil {
			return err
		}
		c, err := Dial("tcp", address)
		if err == nil {
			c.Close()
			defaultFabric.mu.Lock()
			joined = defaultFabric.fabric != nil
			defaultFabric.lack = knownLack{} // it is tried again at once
			defaultFabric.mu.Unlock()
			var ln net.Listener
			if ln, err = Listen("tcp", "127.0.0.1:0"); err == nil {
				ln.Close()
			}
		}
		if err := l.end(); err != nil {
			return err
		}
		if err != nil {
			return fmt.Errorf("with %d descriptors: %w", n, err)
		}
		defaultFabric.mu.Lock()
		joined = joined && n > 1
		defaultFabric.lack = knownLack{}
		defaultFabric.mu.Unlock()
	}
	if !joined {
		return errors.New("the fabric is not joined")
	}
	return joins()
}

// Where the default fabric cannot be joined for lack of something, network "tcp" is TCP. That is
// logged once, and is over when the lack is.
func TestLackMeansTCP(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for _, tt := range []struct {
		kind string
		root bool // it takes a mount namespace
	}{{"files", false}, {"size", false}, {"full", true}, {"readonly", true}, {"readonly, populated", true}} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			exe, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), spec.EnvFabric+"=shm:"+fabrictest.Name(t), lackVariable+"="+tt.kind, addressVariable+"="+server.Addr().String())
			var out, log bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &log
			if tt.root {
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			}
			err = cmd.Run()
			if tt.root && (errors.Is(err, syscall.EPERM) || strings.HasPrefix(out.String(), lackForbidden)) {
				fmt.Printf("WARNING: %s is skipped: no mounts: %v %s\n", t.Name(), err, out.String())
				t.Skip("no mounts")
			}
			require.Equal(t, "ok\n", out.String(), log.String())
			require.NoError(t, err)
			if tt.kind != "files" {
				require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
			}
			require.Contains(t, log.String(), `network "tcp" uses TCP: `)
		})
	}
}

// What a lack is, and what a refusal.
func TestLackIsNoRefusal(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("fabric: %w", err) }
	for _, err := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EROFS, hostdir.ErrLocked} {
		require.True(t, tcpAlone(nil, wrapped(err)), err)
		require.False(t, tcpAlone(&Fabric{}, wrapped(err)), err)
	}
	for _, err := range []error{syscall.EPERM, syscall.EACCES, syscall.EINVAL, syscall.EADDRINUSE, syscall.EBUSY, syscall.ENOENT, context.DeadlineExceeded, greeting.ErrMismatch} {
		require.False(t, tcpAlone(nil, wrapped(err)), err)
	}
}

// A lack counts for a second, for the fabric that it is about.
func TestLackIsKeptForASecond(t *testing.T) {
	at := time.Now()
	l := knownLack{"shm:a", syscall.ENOSPC, at}
	require.Equal(t, syscall.ENOSPC, l.after("shm:a", at))
	require.Equal(t, syscall.ENOSPC, l.after("shm:a", at.Add(lackKept-1)))
	require.NoError(t, l.after("shm:a", at.Add(lackKept)))
	require.NoError(t, l.after("shm:a", at.Add(-1)))
	require.NoError(t, l.after("shm:b", at))
	require.NoError(t, new(knownLack).after("shm:a", at))
}

// Whose place is another user's is not served by TCP alone.
func TestLackIsNotThatOfAPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.Chmod(path, 0o777))
	t.Setenv(spec.EnvFabric, "shm:"+path)
	for range 2 {
		_, err := Dial("tcp", "127.0.0.1:1")
		require.ErrorIs(t, err, syscall.EPERM)
		_, err = Listen("tcp", "127.0.0.1:0")
		require.ErrorIs(t, err, syscall.EPERM)
	}
}
