package sdp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// rawRead reads up to n bytes of the descriptor once, as programs do to find out whether an
// idle connection is good.
func rawRead(t *testing.T, c net.Conn, n, flags int) (string, error) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	b := make([]byte, n)
	var k int
	var rerr error
	require.NoError(t, raw.Read(func(fd uintptr) bool {
		k, _, rerr = unix.Recvfrom(int(fd), b, flags|unix.MSG_DONTWAIT)
		return true
	}))
	if rerr != nil {
		return "", rerr
	}
	return string(b[:k]), nil
}

// A raw read of a connection returns what it returns over TCP.
func TestRawReadShowsWhatArrived(t *testing.T) {
	leak.Check(t)
	check := func(t *testing.T, a, b net.Conn) {
		defer a.Close()
		defer b.Close()
		_, err := rawRead(t, a, 10, 0)
		require.Equal(t, unix.EAGAIN, err)

		_, err = b.Write([]byte("hello"))
		require.NoError(t, err)
		arrived(t, a)
		for _, tc := range []struct {
			n, flags int
			want     string
		}{{10, unix.MSG_PEEK, "hello"}, {1, unix.MSG_PEEK, "h"}, {2, 0, "he"}, {10, unix.MSG_PEEK, "llo"}} {
			got, err := rawRead(t, a, tc.n, tc.flags)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		}
		got := make([]byte, 3)
		_, err = io.ReadFull(a, got)
		require.NoError(t, err)
		require.Equal(t, "llo", string(got))
		_, err = rawRead(t, a, 10, 0)
		require.Equal(t, unix.EAGAIN, err)

		_, err = b.Write([]byte("last"))
		require.NoError(t, err)
		require.NoError(t, b.(socket).CloseWrite())
		isReadable(t, a)
		for _, want := range []string{"la", "st", "", ""} { // data first, and then the end
			got, err := rawRead(t, a, 2, 0)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err = a.Read(got)
		require.Equal(t, io.EOF, err)
	}
	t.Run("tcp", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		a, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		b, err := ln.Accept()
		require.NoError(t, err)
		check(t, a, b)
	})
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b, _, err := pipe(f)
		require.NoError(t, err)
		check(t, a, b)
	})
}

// arrived waits until a raw read finds something.
func arrived(t *testing.T, c net.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := rawRead(t, c, 1, unix.MSG_PEEK)
		return err == nil
	}, 30*time.Second, time.Millisecond)
}

// isReadable waits until the descriptor polls as readable, without a call of the connection.
func isReadable(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 30_000)
			if err == unix.EINTR {
				continue
			}
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.NotZero(t, p[0].Revents&unix.POLLIN)
			return
		}
		require.Fail(t, "not readable")
	}))
}

// The descriptor of a connection that is not being read polls as readable when the other
// side ends, however it ends.
func TestDescriptorIsReadableAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*Conn) error{
		"Close":      (*Conn).Close,
		"CloseWrite": (*Conn).CloseWrite,
		"abort":      func(c *Conn) error { return errors.Join(c.SetLinger(0), c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			onFabrics(t, func(t *testing.T, f *Fabric) {
				for _, before := range []bool{false, true} {
					a, b := mustPipe(t, f)
					if before { // the descriptor is made after the end
						require.NoError(t, end(b))
					} else {
						_, err := rawRead(t, a, 1, 0)
						require.Equal(t, unix.EAGAIN, err)
						go func() { time.Sleep(10 * time.Millisecond); end(b) }()
					}
					isReadable(t, a)
					got, err := rawRead(t, a, 1, 0)
					require.NoError(t, err)
					require.Empty(t, got)
				}
			})
		})
	}
}

// A raw read that is not done waits for more, for Close, and for the deadline.
func TestRawReadWaits(t *testing.T) {
	leak.Check(t)
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		raw, err := a.SyscallConn()
		require.NoError(t, err)
		var got []byte
		until := func(n int) error {
			return raw.Read(func(fd uintptr) bool {
				p := make([]byte, 3)
				k, err := unix.Read(int(fd), p)
				if err == nil {
					got = append(got, p[:k]...)
				}
				return len(got) >= n
			})
		}
		go func() {
			for range 3 {
				time.Sleep(5 * time.Millisecond)
				b.Write([]byte("four"))
			}
		}()
		require.NoError(t, until(12))
		require.Equal(t, "fourfourfour", string(got))

		require.NoError(t, a.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		err = until(13)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		op := new(net.OpError)
		require.ErrorAs(t, err, &op)
		require.Equal(t, "raw-read", op.Op)

		require.NoError(t, a.SetReadDeadline(time.Time{}))
		require.NoError(t, b.Close())
		go func() { time.Sleep(10 * time.Millisecond); a.Close() }()
		require.ErrorIs(t, until(13), net.ErrClosed) // the end has come, and f is not done
		require.ErrorIs(t, raw.Control(func(uintptr) {}), net.ErrClosed)
	})
}

// A program cannot write to the descriptor, so nothing is lost.
func TestDescriptorTakesNothing(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, _ := mustPipe(t, f)
		raw, err := a.SyscallConn()
		require.NoError(t, err)
		require.ErrorIs(t, raw.Write(func(uintptr) bool { panic("called") }), errors.ErrUnsupported)
		require.NoError(t, raw.Control(func(fd uintptr) {
			require.Equal(t, unix.EPIPE, unix.Send(int(fd), []byte("x"), unix.MSG_NOSIGNAL))
		}))
	})
}
