package ivshmem

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const testTimeout = 30 * time.Second

// lines keeps what a server logs.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

// has returns a function that reports whether a line begins so.
func (l *lines) has(begin string) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.ContainsFunc(l.all, func(line string) bool { return strings.HasPrefix(line, begin) })
	}
}

// newServer serves at a path.
func newServer(t *testing.T, o Options) (path string, s *Server, log *lines) {
	log = new(lines)
	o.Log = log.add
	s, err := NewServer(o)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "s")
	ln, err := unixsock.ListenAs(t.Context(), path, unixsock.Rights{UID: -1, GID: -1})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-served, net.ErrClosed)
	})
	return path, s, log
}

func dial(t *testing.T, path string) *Client {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := Dial(ctx, path)
	require.NoError(t, err)
	return c
}

// knows waits until a client has another's interrupt, or has it no more.
func knows(t *testing.T, c *Client, id int64, want bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return (c.peers[id] != nil) == want
	}, testTimeout, time.Millisecond)
}

func interrupts(t *testing.T, from, to *Client) {
	t.Helper()
	from.Interrupt(to.ID())
	done := make(chan error, 1)
	go func() { done <- to.Wait() }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(testTimeout):
		t.Fatal("no interrupt")
	}
}

func TestClientsMeet(t *testing.T) {
	leak.Check(t)
	for _, vectors := range []int{1, 3, MaxVectors} {
		path, _, log := newServer(t, Options{Size: MinSize, Peers: 3, Vectors: vectors})
		a, b := dial(t, path), dial(t, path)
		require.NotEqual(t, a.ID(), b.ID())
		knows(t, a, b.ID(), true)
		interrupts(t, a, b)
		interrupts(t, b, a)

		fa, size := a.Memory()
		fb, _ := b.Memory()
		require.EqualValues(t, MinSize, size)
		_, err := fa.WriteAt([]byte("hello"), MinSize-5)
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = fb.ReadAt(got, MinSize-5)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
		require.Error(t, fa.Truncate(0), "its size is sealed")

		// One goes, and another one comes in its place.
		require.NoError(t, b.Close())
		require.Error(t, b.Wait())
		knows(t, a, b.ID(), false)
		a.Interrupt(b.ID())
		c, d := dial(t, path), dial(t, path)
		knows(t, a, c.ID(), true)
		knows(t, a, d.ID(), true)
		knows(t, c, d.ID(), true)
		interrupts(t, c, a)
		interrupts(t, c, d)

		_, err = Dial(context.Background(), path)
		require.ErrorContains(t, err, "as many clients as it serves")
		require.Eventually(t, log.has("a client is refused: there are 3, as many as there may be"), testTimeout, time.Millisecond)
		for _, c := range []*Client{a, c, d} {
			require.NoError(t, c.Close())
		}
	}
}

// A number does not come back while there is anyone who may have known the one who had it.
func TestNumbersAreNotGivenAgain(t *testing.T) {
	leak.Check(t)
	path, s, log := newServer(t, Options{Size: MinSize, Peers: 3, Vectors: 1})
	a := dial(t, path)
	for i := range int64(20) {
		b := dial(t, path)
		require.Equal(t, i+1, b.ID())
		knows(t, a, b.ID(), true)
		require.NoError(t, b.Close())
		knows(t, a, b.ID(), false)
	}
	s.mu.Lock()
	s.next = maxNumber
	s.mu.Unlock()
	_, err := Dial(context.Background(), path)
	require.Error(t, err)
	require.Eventually(t, log.has("a client is refused: 65535 have come"), testTimeout, time.Millisecond)

	require.NoError(t, a.Close())
	require.Eventually(t, log.has("client 0 has gone"), testTimeout, time.Millisecond)
	b := dial(t, path)
	require.Zero(t, b.ID())
	require.NoError(t, b.Close())
}

// When the server has gone, clients go on with what they have.
func TestTheServerGoes(t *testing.T) {
	leak.Check(t)
	path, s, _ := newServer(t, Options{Size: MinSize, Peers: 2, Vectors: 1})
	a, b := dial(t, path), dial(t, path)
	defer a.Close()
	defer b.Close()
	knows(t, a, b.ID(), true)
	require.NoError(t, s.Close())
	<-a.Gone()
	<-b.Gone()
	interrupts(t, a, b)
	interrupts(t, b, a)
	_, err := Dial(context.Background(), path)
	require.ErrorContains(t, err, "ntb-ivshmem-server starts one")
}

// A client that does not read holds nobody up, and is dropped in the end. One that sends
// something is dropped at once.
func TestClientsThatMisbehave(t *testing.T) {
	leak.Check(t)
	path, _, log := newServer(t, Options{Size: MinSize, Peers: MaxPeers, Vectors: MaxVectors})
	deaf, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer deaf.Close()
	require.Eventually(t, log.has("client 0 has come"), testTimeout, time.Millisecond)
	gone := log.has("client 0 has gone")
	for range 1000 {
		require.NoError(t, dial(t, path).Close())
		if gone() {
			break
		}
	}
	require.Eventually(t, log.has("client 0 has gone"), testTimeout, time.Millisecond)

	loud, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer loud.Close()
	require.Eventually(t, func() bool {
		_, err := loud.Write([]byte{0})
		return err != nil
	}, testTimeout, time.Millisecond)
}

// Whatever a server sends, a client returns an error and leaves nothing behind.
func TestServersThatMisbehave(t *testing.T) {
	leak.Check(t)
	memory := func(size int64) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		require.NoError(t, err)
		require.NoError(t, unix.Ftruncate(fd, size))
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	good := memory(MinSize)
	for name, messages := range map[string][]message{
		"nothing":                  nil,
		"another version":          {{1, -1}},
		"a version with a file":    {{0, good}},
		"no number":                {{0, -1}},
		"a number that is too big": {{0, -1}, {MaxID + 1, -1}},
		"no memory":                {{0, -1}, {0, -1}, {-1, -1}},
		"a client for the memory":  {{0, -1}, {0, -1}, {1, good}},
		"memory of an odd size":    {{0, -1}, {0, -1}, {-1, memory(MinSize + 1)}},
		"no memory at all":         {{0, -1}, {0, -1}, {-1, memory(0)}},
		"no interrupt":             {{0, -1}, {0, -1}, {-1, good}},
		"a strange client":         {{0, -1}, {0, -1}, {-1, good}, {-2, good}},
		"one without interrupts":   {{0, -1}, {0, -1}, {-1, good}, {5, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			before := files(t)
			path := filepath.Join(t.TempDir(), "s")
			ln, err := net.Listen("unix", path)
			require.NoError(t, err)
			defer ln.Close()
			go func() {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				for _, m := range messages {
					_ = send(own(c), m)
				}
			}()
			_, err = Dial(context.Background(), path)
			require.Error(t, err)
			ln.Close()
			require.Eventually(t, func() bool { return files(t) <= before }, testTimeout, time.Millisecond)
		})
	}
}

// A server that says nothing holds a dial up for as long as its context.
func TestADialEndsWithItsContext(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, path)
	require.Error(t, err)
}

func TestOptions(t *testing.T) {
	good := Options{Size: 1 << 20, Peers: 2, Vectors: 1}
	require.NoError(t, good.Check())
	for _, bad := range []Options{
		{Size: 1<<20 + 1, Peers: 2, Vectors: 1}, {Size: 1 << 19, Peers: 2, Vectors: 1}, {Size: 1 << 41, Peers: 2, Vectors: 1},
		{Size: 1 << 20, Peers: 1, Vectors: 1}, {Size: 1 << 20, Peers: 17, Vectors: 1}, {Size: 1 << 20, Peers: 2},
		{Size: 1 << 20, Peers: 2, Vectors: 65},
	} {
		require.ErrorContains(t, bad.Check(), "want")
	}
}

func own(c net.Conn) *unixsock.Conn {
	own, err := unixsock.Own(c)
	if err != nil {
		panic(err)
	}
	return own
}

// files returns how many descriptors this process has.
func files(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// FuzzClient has a server send anything, with a descriptor at any message.
func FuzzClient(f *testing.F) {
	word := func(values ...int64) (b []byte) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		return b
	}
	f.Add(word(0, 0, -1, 0), uint16(1<<2|1<<3))
	f.Add(word(0, 1, -1, 0, 1, 0), uint16(1<<2|1<<3|1<<4))
	f.Fuzz(func(t *testing.T, b []byte, with uint16) {
		sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skip(err)
		}
		var conns [2]*unixsock.Conn
		for i, fd := range sockets {
			f := os.NewFile(uintptr(fd), "")
			c, err := net.FileConn(f)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			conns[i] = own(c)
		}
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Skip(err)
		}
		defer unix.Close(fd)
		for i := 0; len(b) >= 8 && i < 16; i, b = i+1, b[8:] {
			m := message{int64(binary.LittleEndian.Uint64(b)), -1}
			if with&(1<<i) != 0 {
				m.file = fd
			}
			_ = send(conns[0], m)
		}
		conns[0].Close()
		c := &Client{conn: conns[1], ended: make(chan struct{}), peers: make(map[int64]*os.File)}
		if c.greet() == nil {
			c.listen()
		}
		conns[1].Close()
		c.release()
	})
}
