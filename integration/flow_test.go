//go:build linux

package integration

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// flow is one connection on which both sides send a stream at the same time, and
// check what they receive. The dialling side sends a header first:
//
//	0  4  seed
//	4  8  bytes that each side sends; 0: until the dialling side has enough
type flow struct {
	c              net.Conn
	seed           int
	n              int64
	sent, received atomic.Int64
	enough         atomic.Bool // an endless flow is to end
}

const flowHeader = 12

// maxFlows is the number of seeds. A flow has two streams.
const maxFlows = 2000

// dialling runs the side that dialled.
func (f *flow) dialling() error {
	var h [flowHeader]byte
	binary.LittleEndian.PutUint32(h[:], uint32(f.seed))
	binary.LittleEndian.PutUint64(h[4:], uint64(f.n))
	if _, err := f.c.Write(h[:]); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return f.both(newStream(2*f.seed), newStream(2*f.seed+1), func() {})
}

// accepted runs the other side. It returns io.EOF if the dialling side sent nothing
// at all.
func (f *flow) accepted() error {
	var h [flowHeader]byte
	if _, err := io.ReadFull(f.c, h[:]); err != nil {
		return err
	}
	f.seed = int(binary.LittleEndian.Uint32(h[:]))
	f.n = int64(binary.LittleEndian.Uint64(h[4:]))
	return f.both(newStream(2*f.seed+1), newStream(2*f.seed), func() { f.enough.Store(true) })
}

// both sends and receives until both are done. It calls ended when the other side
// has sent everything.
func (f *flow) both(out, in *stream, ended func()) error {
	sent := make(chan error, 1)
	go func() { sent <- f.send(out) }()
	err := f.receive(in)
	if err != nil {
		f.c.Close() // so send ends too
	}
	ended()
	if err := errors.Join(err, <-sent); err != nil {
		return fmt.Errorf("flow %d, %d bytes sent, %d received: %w", f.seed, f.sent.Load(), f.received.Load(), err)
	}
	return nil
}

func (f *flow) send(s *stream) error {
	for i := 0; ; i++ {
		size := 1 << (6 + i%11) // 64 bytes to 64 KiB
		if f.n > 0 {
			size = int(min(int64(size), f.n-f.sent.Load()))
		}
		if size == 0 || f.n == 0 && f.enough.Load() {
			return f.c.(interface{ CloseWrite() error }).CloseWrite()
		}
		n, err := f.c.Write(s.next(size))
		f.sent.Add(int64(n))
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}

func (f *flow) receive(s *stream) error {
	buf := make([]byte, min(64<<10, max(512, f.n/4)))
	for {
		n, err := f.c.Read(buf)
		if _, err := s.Write(buf[:n]); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		f.received.Add(int64(n))
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
	if n := f.received.Load(); f.n > 0 && n != f.n {
		return fmt.Errorf("receive: EOF after %d bytes of %d", n, f.n)
	}
	return nil
}

// usage is what a process uses and has done.
type usage struct {
	Descriptors, Goroutines int
	Heap                    int64 // bytes in use
	Runtime                 int64 // bytes that the runtime has from the system, heap and stacks included
	Window                  int64 // bytes of shared memory that are in use
	Conns                   int64 // accepted
	Open                    int64 // of them
	Received, Sent          int64 // payload of flows
}

// takeUsage fills in what concerns this process.
func takeUsage() (u usage, err error) {
	runtime.GC()
	runtime.GC() // frees what pools hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Heap, u.Runtime = int64(m.HeapAlloc), int64(m.Sys)
	u.Goroutines = runtime.NumGoroutine()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return u, err
	}
	u.Descriptors = len(fds)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u, err
	}
	_, shared, _ := strings.Cut(string(status), "\nRssShmem:")
	if _, err := fmt.Sscan(shared, &u.Window); err != nil {
		return u, fmt.Errorf("RssShmem: %w", err)
	}
	u.Window <<= 10
	return u, nil
}

// playServe accepts flows until the test is done, and reports its usage when asked.
// Every flow must end well.
func playServe(p *self) error {
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		return err
	}
	var conns, open, received, sent atomic.Int64
	var mu sync.Mutex
	var bad []error // guarded by mu
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			open.Add(1)
			wg.Go(func() {
				defer open.Add(-1)
				defer c.Close()
				f := &flow{c: c}
				err := f.accepted()
				if e := wantSDP(c); e != nil {
					err = e
				}
				received.Add(f.received.Load())
				sent.Add(f.sent.Load())
				if err != nil && err != io.EOF {
					mu.Lock()
					bad = append(bad, err)
					mu.Unlock()
				}
			})
		}
	})
	p.printf("%s", ln.Addr())
	for {
		if _, ok := p.readLine(); !ok {
			break
		}
		u, err := takeUsage()
		if err != nil {
			return err
		}
		u.Conns, u.Open = conns.Load(), open.Load()
		u.Received, u.Sent = received.Load(), sent.Load()
		b, err := json.Marshal(u)
		if err != nil {
			return err
		}
		p.printf("%s", b)
	}
	ln.Close()
	wg.Wait()
	return errors.Join(bad...)
}

// startServer starts playServe and returns its address.
func startServer(t *testing.T) (*peer, string) {
	t.Helper()
	p := startPeer(t, "serve", nil)
	return p, p.readLine()
}

// usage asks a server for its usage.
func (p *peer) usage() (u usage) {
	p.t.Helper()
	p.askFor("usage", &u)
	return u
}

// wantServed starts a new server and moves data both ways, to check that everything
// works.
func wantServed(t *testing.T) {
	t.Helper()
	server, address := startServer(t)
	c := dialSDP(t, address)
	require.NoError(t, (&flow{c: c, seed: 1, n: 3 << 20}).dialling())
	require.NoError(t, c.Close())
	until(t, "the server is done", func() bool { return server.usage().Open == 0 })
	there := server.usage()
	require.EqualValues(t, 1, there.Conns)
	require.EqualValues(t, 3<<20, there.Received)
	server.quietly()
}

// quietly kills a server that has done its work. To end by itself would take it a
// moment.
func (p *peer) quietly() {
	p.t.Helper()
	p.kill()
	p.quiet()
}
