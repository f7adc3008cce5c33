package sdp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	os.Exit(fabrictest.Main(m))
}

func mustPipe(t *testing.T, f *Fabric) (a, b *Conn) {
	t.Helper()
	x, y, stop, err := pipe(f)
	require.NoError(t, err)
	t.Cleanup(stop)
	return x.(*Conn), y.(*Conn)
}

func TestAddressesCanBeSplitAndDialled(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		ln, err := f.Listen("sdp", ":0")
		require.NoError(t, err)
		defer ln.Close()
		for _, name := range []string{"localhost", "127.0.0.1", "::1", "", "node1", "LOCALHOST."} {
			_, port, err := net.SplitHostPort(ln.Addr().String())
			require.NoError(t, err)
			c, err := f.Dial("sdp", net.JoinHostPort(name, port))
			require.NoError(t, err, name)
			s, err := ln.Accept()
			require.NoError(t, err)
			for _, a := range []net.Addr{ln.Addr(), c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr()} {
				require.Equal(t, "sdp", a.Network())
				_, port, err := net.SplitHostPort(a.String())
				require.NoError(t, err)
				n, err := strconv.Atoi(port)
				require.NoError(t, err)
				require.Positive(t, n)
			}
			require.Equal(t, ln.Addr().String(), c.RemoteAddr().String())
			require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
			c.Close()
			s.Close()
		}
	})
}

// Every error is a *net.OpError whose cause errors.Is finds.
func TestErrors(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		ln, err := f.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		defer ln.Close()
		closed, err := f.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		closed.Close()
		conn, _ := mustPipe(t, f)
		conn.Close()
		dial := func(network, address string) error { _, err := f.Dial(network, address); return err }
		lis := func(network, address string) error { _, err := f.Listen(network, address); return err }
		var (
			addrErr    *net.AddrError
			dnsErr     *net.DNSError
			unknownErr net.UnknownNetworkError
		)
		for name, tc := range map[string]struct {
			err error
			op  string
			is  error
			as  any
		}{
			"dial unknown network":     {dial("sdp4", "localhost:1"), "dial", nil, &unknownErr},
			"listen unknown network":   {lis("sdp6", "localhost:1"), "listen", nil, &unknownErr},
			"dial without port":        {dial("sdp", "localhost"), "dial", nil, &addrErr},
			"listen without port":      {lis("sdp", "localhost"), "listen", nil, &addrErr},
			"dial port out of range":   {dial("sdp", "localhost:65536"), "dial", nil, &addrErr},
			"listen port out of range": {lis("sdp", "localhost:-1"), "listen", nil, &addrErr},
			"dial unknown service":     {dial("sdp", "localhost:nosuchservice"), "dial", nil, &dnsErr},
			"dial port 0":              {dial("sdp", "localhost:0"), "dial", syscall.ECONNREFUSED, nil},
			"nothing listens":          {dial("sdp", "localhost:1"), "dial", syscall.ECONNREFUSED, nil},
			"listener closed":          {dial("sdp", closed.Addr().String()), "dial", syscall.ECONNREFUSED, nil},
			"no such node":             {dial("sdp", "node7:80"), "dial", syscall.EHOSTUNREACH, nil},
			"another machine":          {dial("sdp", "192.0.2.1:80"), "dial", syscall.EHOSTUNREACH, nil},
			"port in use":              {lis("sdp", ln.Addr().String()), "listen", syscall.EADDRINUSE, nil},
			"listen elsewhere":         {lis("sdp", "192.0.2.1:80"), "listen", syscall.EADDRNOTAVAIL, nil},
			"accept on a closed one":   {func() error { _, err := closed.Accept(); return err }(), "accept", net.ErrClosed, nil},
			"close a closed listener":  {closed.Close(), "close", net.ErrClosed, nil},
			"read on a closed one":     {func() error { _, err := conn.Read(nil); return err }(), "read", net.ErrClosed, nil},
			"write on a closed one":    {func() error { _, err := conn.Write(nil); return err }(), "write", net.ErrClosed, nil},
			"close a closed one":       {conn.Close(), "close", net.ErrClosed, nil},
			"close write a closed one": {conn.CloseWrite(), "close", net.ErrClosed, nil},
			"close read a closed one":  {conn.CloseRead(), "close", net.ErrClosed, nil},
			"deadline of a closed one": {conn.SetDeadline(time.Now()), "set", net.ErrClosed, nil},
			"buffer of a closed one":   {conn.SetReadBuffer(4096), "set", net.ErrClosed, nil},
			"linger of a closed one":   {conn.SetLinger(0), "set", net.ErrClosed, nil},
		} {
			var op *net.OpError
			require.ErrorAs(t, tc.err, &op, name)
			require.Equal(t, tc.op, op.Op, name)
			require.NotContains(t, tc.err.Error(), "\n", name)
			if tc.is != nil {
				require.ErrorIs(t, tc.err, tc.is, name)
				require.Equal(t, "sdp", op.Net, name)
			} else {
				require.ErrorAs(t, tc.err, tc.as, name)
			}
		}
	})
	for _, spec := range []string{"ring", "shm:", "shm:../x", "mem:", "ivshmem:0", "x:y"} {
		_, err := Open(spec)
		require.ErrorIs(t, err, syscall.EINVAL, spec)
	}
}

// In the bubble a deadline comes when nothing else can happen any more. So each write
// gets as far as it can.
func TestBufferSizesAreChecked(t *testing.T) {
	synctest.Test(t, checkBufferSizes)
}

func checkBufferSizes(t *testing.T) {
	f, err := Open("mem:test-buffers?spin=0")
	require.NoError(t, err)
	defer f.Close()
	a, b := mustPipe(t, f)
	require.NoError(t, a.SetReadBuffer(0), "as over TCP")
	require.NoError(t, b.SetWriteBuffer(-1))
	require.NoError(t, a.SetReadBuffer(64<<10))
	require.NoError(t, b.SetWriteBuffer(1))
	// The smaller of the two limits what is under way.
	b.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := b.Write(make([]byte, 1<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Less(t, n, 8<<10)
	a.SetReadBuffer(64 << 10)
	a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, _ = a.Write(make([]byte, 4<<20))
	require.Greater(t, n, 512<<10)
	require.Less(t, n, 1200<<10)
}

func TestHalfClose(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for _, swap := range []bool{false, true} {
			a, b := mustPipe(t, f)
			if swap {
				a, b = b, a
			}
			_, err := a.Write([]byte("question"))
			require.NoError(t, err)
			require.NoError(t, a.CloseWrite())
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.Equal(t, "question", string(got))
			_, err = b.Write([]byte("answer"))
			require.NoError(t, err)
			require.NoError(t, b.Close())
			got, err = io.ReadAll(a)
			require.NoError(t, err)
			require.Equal(t, "answer", string(got))
			_, err = a.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.EPIPE)
		}
	})
}

func TestDataBeforeFINIsNeverLost(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for i := range 200 {
			a, b := mustPipe(t, f)
			n := i * 1000
			go func() {
				a.Write(make([]byte, n))
				a.Close()
			}()
			k, err := io.Copy(io.Discard, b)
			require.NoError(t, err)
			require.EqualValues(t, n, k)
			b.Close()
		}
	})
}

func TestAbortResets(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		a.Write([]byte("last"))
		require.NoError(t, a.SetLinger(0))
		require.NoError(t, a.Close())
		got, err := io.ReadAll(b)
		require.Equal(t, "last", string(got))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "read", op.Op)
		_, err = b.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

func TestCloseWakesWhoWaits(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, _ := mustPipe(t, f)
		c, _ := mustPipe(t, f)
		ln, err := f.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		for name, tc := range map[string]struct {
			wait  func() error
			close func() error
		}{
			"read":   {func() error { _, err := a.Read(make([]byte, 1)); return err }, a.Close},
			"write":  {func() error { _, err := c.Write(make([]byte, 8<<20)); return err }, c.Close},
			"accept": {func() error { _, err := ln.Accept(); return err }, ln.Close},
		} {
			done := make(chan error)
			go func() { done <- tc.wait() }()
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, tc.close())
			select {
			case err := <-done:
				require.ErrorIs(t, err, net.ErrClosed, name)
			case <-time.After(60 * time.Second):
				t.Fatalf("%s still waits", name)
			}
		}
	})
}

func TestBacklogFull(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		ln, err := (&ListenConfig{Fabric: f, Backlog: 2}).Listen(context.Background(), "sdp", "localhost:0")
		require.NoError(t, err)
		defer ln.Close()
		var conns []net.Conn
		for range 2 {
			c, err := f.Dial("sdp", ln.Addr().String())
			require.NoError(t, err)
			conns = append(conns, c)
		}
		// A third dial waits, until its limit ...
		err = dialUntil(t, f, ln.Addr().String(), "backlog")
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		require.True(t, ne.Timeout())
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		// ... or until there is room, ...
		done := make(chan error)
		go func() {
			c, err := f.Dial("sdp", ln.Addr().String())
			if err == nil {
				c.Close()
			}
			done <- err
		}()
		time.Sleep(20 * time.Millisecond)
		s, err := ln.Accept()
		require.NoError(t, err)
		s.Close()
		require.NoError(t, <-done)
		// ... or until its context is cancelled.
		ctx, cancel := context.WithCancel(context.Background())
		go func() { time.Sleep(20 * time.Millisecond); cancel() }()
		_, err = f.DialContext(ctx, "sdp", ln.Addr().String())
		require.ErrorIs(t, err, context.Canceled)
		// Closing the listener resets the connections that wait.
		require.NoError(t, ln.Close())
		_, err = conns[1].Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		for _, c := range conns {
			c.Close()
		}
	})
}

// A dial that waits for room in a backlog ends when the listener's process does.
// The link and its memory end with that process. Two names of one fabric are two
// nodes here.
func TestDialWhenTheListenersProcessEnds(t *testing.T) {
	leak.Check(t)
	for range 5 {
		a, err := Open("shm:" + fabrictest.Name(t) + "?spin=20us")
		require.NoError(t, err)
		b, err := Open("shm:" + fabrictest.Name(t) + "?spin=21us")
		require.NoError(t, err)
		ln, err := (&ListenConfig{Backlog: 1, Fabric: b}).Listen(context.Background(), "sdp", "localhost:0")
		require.NoError(t, err)
		c, err := a.Dial("sdp", ln.Addr().String())
		require.NoError(t, err)
		done := make(chan error)
		go func() { _, err := a.Dial("sdp", ln.Addr().String()); done <- err }()
		time.Sleep(30 * time.Millisecond)
		c.Close()
		b.Close()
		runtime.KeepAlive(ln)
		require.ErrorIs(t, <-done, syscall.ECONNREFUSED)
		a.Close()
	}
}

func TestDialWithEndedContext(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		ln, err := f.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		defer ln.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, address := range []string{ln.Addr().String(), "example.invalid:80"} {
			_, err = f.DialContext(ctx, "sdp", address)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, ": operation was canceled")
		}
		d := Dialer{Fabric: f, Deadline: time.Now().Add(-time.Second)}
		_, err = d.Dial("sdp", ln.Addr().String())
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

func TestAcceptDeadline(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		ln, err := f.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		defer ln.Close()
		l := ln.(*Listener)
		l.SetDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = ln.Accept()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		l.SetDeadline(time.Time{})
		go f.Dial("sdp", ln.Addr().String())
		c, err := ln.Accept()
		require.NoError(t, err)
		c.Close()
	})
}

// Several goroutines make and close connections at once, each with a few bytes to
// and fro. Nothing is left.
func TestManyShortConnections(t *testing.T) {
	leak.Check(t)
	onFabrics(t, func(t *testing.T, f *Fabric) {
		ln, err := f.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				wg.Go(func() { io.Copy(c, c); c.Close() })
			}
		})
		var dials sync.WaitGroup
		for range 4 {
			dials.Go(func() {
				for i := range 500 {
					c, err := f.Dial("sdp", ln.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					msg := strconv.Itoa(i)
					c.Write([]byte(msg))
					c.(*Conn).CloseWrite()
					got, err := io.ReadAll(c)
					if err != nil || string(got) != msg {
						t.Errorf("got %q, %v, want %q", got, err, msg)
					}
					c.Close()
				}
			})
		}
		dials.Wait()
		ln.Close()
		wg.Wait()
	})
}

func TestReadFromAndWriteTo(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		c, d := mustPipe(t, f)
		const n = 5 << 20
		var copies sync.WaitGroup
		copies.Go(func() { io.Copy(a, io.LimitReader(zeros{}, n)); a.CloseWrite() }) // ReadFrom
		copies.Go(func() { io.Copy(c, b); c.CloseWrite() })                          // WriteTo
		k, err := io.Copy(io.Discard, d)
		require.NoError(t, err)
		copies.Wait() // what is counted is seen when a call ends
		require.EqualValues(t, n, k)
		sent, got := a.Stats(), d.Stats()
		require.EqualValues(t, n, sent.BytesWritten())
		require.EqualValues(t, n, got.BytesRead)
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestHostsOfOneProcessShareAFabric(t *testing.T) {
	leak.Check(t)
	for _, spec := range fabrics(t) {
		h1, err := Open(spec)
		require.NoError(t, err)
		h2, err := Open(spec)
		require.NoError(t, err)
		ln, err := h1.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		_, err = h2.Listen("sdp", ln.Addr().String())
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		c, err := h2.Dial("sdp", ln.Addr().String())
		require.NoError(t, err)
		s, err := ln.Accept()
		require.NoError(t, err)
		require.NoError(t, h2.Close()) // closes c
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = s.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.NoError(t, h1.Close())
		_, err = ln.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, h1.Close(), net.ErrClosed)
		for _, network := range []string{"sdp", "tcp"} {
			_, err = h1.Listen(network, "localhost:0")
			require.ErrorIs(t, err, net.ErrClosed)
			_, err = h1.Dial(network, "localhost:1")
			require.ErrorIs(t, err, net.ErrClosed)
		}
	}
}

// The default Fabric is there when it is needed, and gone, with all that it held,
// when it is not.
func TestDefaultHostIsReleased(t *testing.T) {
	leak.Check(t)
	for range 3 {
		ln, err := Listen("sdp", "localhost:0")
		require.NoError(t, err)
		c, err := DialTimeout("sdp", ln.Addr().String(), 60*time.Second)
		require.NoError(t, err)
		s, err := ln.Accept()
		require.NoError(t, err)
		require.NoError(t, ln.Close())
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(s, make([]byte, 1))
		require.NoError(t, err)
		require.Positive(t, DefaultStats().BytesRead)
		c.Close()
		s.Close()
		defaultFabricEnds(t)
	}
	_, err := Dial("sdp", "localhost:1")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// defaultFabricEnds waits until the default Fabric is closed.
func defaultFabricEnds(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		defaultFabric.mu.Lock()
		defer defaultFabric.mu.Unlock()
		return defaultFabric.fabric == nil
	}, 60*time.Second, 10*time.Millisecond)
}

// A call waits for the default Fabric no longer than its context lasts, and nothing else
// waits for that.
func TestACallEndsWhileTheDefaultFabricIsBeingOpened(t *testing.T) {
	leak.Check(t)
	name := "shm:" + fabrictest.Name(t)
	t.Setenv("SDP_FABRIC", name)
	other := newStack(bounce.Options{}) // another Open has begun
	other.refs = 1
	stacks.mu.Lock()
	stacks.open[name] = other
	stacks.mu.Unlock()

	for _, network := range []string{"sdp", "tcp"} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_, err := (&Dialer{}).DialContext(ctx, network, "localhost:1")
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, network)
		_, err = (&ListenConfig{}).Listen(ctx, network, "localhost:0")
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, network)
		cancel()
	}
	require.Zero(t, DefaultStats().Links)

	failed := make(chan error)
	go func() {
		_, err := Dial("sdp", "localhost:1")
		failed <- err
	}()
	stacks.mu.Lock()
	delete(stacks.open, name)
	stacks.mu.Unlock()
	other.err = syscall.EBUSY
	close(other.opened)
	// The call began during that one, or opened the Fabric itself afterwards.
	err := <-failed
	require.True(t, errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ECONNREFUSED), "%v", err)
	_, err = Dial("sdp", "localhost:1")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	defaultFabricEnds(t)
}

func TestNetworkTCPTakesSDPWhereItCan(t *testing.T) {
	leak.Check(t)
	f, err := Open("shm:" + fabrictest.Name(t))
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer plain.Close()

	exchange := func(c net.Conn, ln net.Listener, network string) {
		t.Helper()
		s, err := ln.Accept()
		require.NoError(t, err)
		for _, end := range []net.Conn{c, s} {
			_, sdp := end.(*Conn)
			require.Equal(t, network == "sdp", sdp)
			require.IsType(t, (*net.TCPAddr)(nil), end.LocalAddr())
			require.IsType(t, (*net.TCPAddr)(nil), end.RemoteAddr())
		}
		_, err = c.Write([]byte("hello"))
		require.NoError(t, err)
		_, err = io.ReadFull(s, make([]byte, 5))
		require.NoError(t, err)
		c.Close()
		s.Close()
	}
	c, err := f.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	exchange(c, ln, "sdp")
	c, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	exchange(c, ln, "tcp")
	c, err = f.Dial("tcp", plain.Addr().String())
	require.NoError(t, err)
	exchange(c, plain, "tcp")

	n := f.Stats().Networks
	require.Equal(t, NetworkStats{DialSDP: 1, DialNoSDP: 1, AcceptSDP: 1, AcceptTCP: 1}, n)

	// A port that only one of the two networks has is in use.
	_, err = f.Listen("tcp", ln.Addr().String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_, err = f.Listen("sdp", "localhost:"+port)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	// Close wakes Accept.
	done := make(chan error)
	go func() { _, err := ln.Accept(); done <- err }()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, ln.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
	require.ErrorIs(t, ln.Close(), net.ErrClosed)
	_, err = f.Dial("tcp", ln.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestOpErrorKeepsEOFAndMakesNetErrors(t *testing.T) {
	local, remote := &Addr{"localhost", 1}, &Addr{"localhost", 2}
	require.Nil(t, opError(opRead, local, remote, nil))
	require.Equal(t, io.EOF, opError(opRead, local, remote, io.EOF))
	for _, tc := range []struct {
		err     error
		is      error
		timeout bool
		text    string
	}{
		{os.ErrDeadlineExceeded, os.ErrDeadlineExceeded, true, "read sdp localhost:1->localhost:2: i/o timeout"},
		{context.DeadlineExceeded, context.DeadlineExceeded, true, "read sdp localhost:1->localhost:2: i/o timeout"},
		{bounce.ErrClosed, net.ErrClosed, false, "read sdp localhost:1->localhost:2: use of closed network connection"},
		{syscall.ECONNRESET, syscall.ECONNRESET, false, "read sdp localhost:1->localhost:2: read: connection reset by peer"},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, fs.ErrPermission, false, "read sdp localhost:1->localhost:2: open /x: permission denied"},
	} {
		err := opError(opRead, local, remote, tc.err)
		require.ErrorIs(t, err, tc.is)
		require.Equal(t, tc.text, err.Error())
		var ne net.Error
		require.True(t, errors.As(err, &ne))
		require.Equal(t, tc.timeout, ne.Timeout())
	}
}
