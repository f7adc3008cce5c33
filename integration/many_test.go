//go:build linux

package integration

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// A thousand connections are open at once, and all of them move data.
func TestManyConnectionsAtOnce(t *testing.T) {
	newFabric(t)
	server, address := startServer(t)
	const conns = 1000
	size := long(256<<10, 32<<10)
	flows := make([]*flow, conns)
	for i := range flows {
		flows[i] = &flow{c: dialSDP(t, address), seed: i, n: size}
	}
	until(t, "all are accepted", func() bool { return server.usage().Open == conns })
	var wg sync.WaitGroup
	errs := make([]error, conns)
	for i, f := range flows {
		wg.Go(func() { errs[i] = f.dialling() })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, f := range flows {
		require.Equal(t, size, f.sent.Load())
		require.Equal(t, size, f.received.Load())
		require.NoError(t, f.c.Close())
	}
	until(t, "the server is done", func() bool { return server.usage().Open == 0 })
	there := server.usage()
	require.EqualValues(t, conns, there.Conns)
	require.Equal(t, conns*size, there.Sent)
	require.Equal(t, conns*size, there.Received)
	server.end()
}

// Connections that come and go leave nothing behind, at either endpoint.
func TestManyConnectionsInARow(t *testing.T) {
	newFabric(t)
	server, address := startServer(t)
	keep := dialSDP(t, address) // keeps the link as it is between measurements
	total := int64(0)
	series := func(n int) {
		t.Helper()
		for i := range n {
			c, err := sdp.Dial("sdp", address)
			require.NoError(t, err)
			if i%4 == 0 { // some with data, a few of them with much
				f := &flow{c: c, seed: i % maxFlows, n: 3000}
				if i%100 == 0 {
					f.n = 300_000
				}
				require.NoError(t, f.dialling())
			}
			require.NoError(t, c.Close())
		}
		total += int64(n)
	}
	// What is closed goes away a little later.
	measure := func() (here, there usage) {
		t.Helper()
		until(t, "the server is done", func() bool {
			there = server.usage()
			return there.Open == 1 && there.Conns == total+1
		})
		here, err := takeUsage()
		require.NoError(t, err)
		return here, there
	}
	series(2000)
	here, there := measure()
	n := int(long(20_000, 4_000))
	series(n)
	hereAfter, thereAfter := measure()
	t.Logf("here:  %+v\n        %+v", here, hereAfter)
	t.Logf("there: %+v\n        %+v", there, thereAfter)
	grown := func(before, after usage) error {
		switch {
		case after.Descriptors > before.Descriptors:
			return errors.New("descriptors")
		case after.Goroutines > before.Goroutines:
			return errors.New("goroutines")
		// The limits are less than a page per connection, and some bytes of the
		// heap. All resident memory says less, since it contains the race
		// detector's.
		case after.Window > before.Window+int64(n)*1024:
			return errors.New("shared memory")
		case after.Runtime > before.Runtime+int64(n)*2048:
			return errors.New("memory of the runtime")
		case after.Heap > before.Heap+int64(n)*32:
			return errors.New("heap")
		}
		return nil
	}
	require.NoError(t, grown(here, hereAfter), "growth here")
	require.NoError(t, grown(there, thereAfter), "growth there")
	require.NoError(t, keep.Close())
	server.end()
}

// When the window has no room for another connection, a dial fails, at once or by
// its deadline. When connections have gone, there is room again.
func TestWindowFull(t *testing.T) {
	leak.Check(t)
	fabric, err := sdp.Open("mem:window-full")
	require.NoError(t, err)
	defer fabric.Close()
	ln, err := fabric.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	address := ln.Addr().String()
	var mu sync.Mutex
	accepted := map[string]net.Conn{} // by the address of the dialling endpoint; guarded by mu
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			accepted[c.RemoteAddr().String()] = c
			mu.Unlock()
		}
	})
	far := func(c net.Conn) (f net.Conn) {
		t.Helper()
		until(t, "the connection is accepted", func() bool {
			mu.Lock()
			defer mu.Unlock()
			f = accepted[c.LocalAddr().String()]
			return f != nil
		})
		return f
	}
	wantFull := func(err error) {
		t.Helper()
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "dial", op.Op)
		require.ErrorIs(t, err, syscall.ENOBUFS)
		require.ErrorContains(t, err, "window full")
	}
	const least, most = 1000, 100_000 // 16 MiB are room for a number between
	var open []net.Conn
	for {
		c, err := fabric.Dial("sdp", address)
		if err != nil {
			wantFull(err)
			var op *net.OpError
			require.False(t, errors.As(err, &op) && op.Timeout(), "%v", err)
			break
		}
		open = append(open, c)
		require.Less(t, len(open), most)
	}
	t.Logf("%d connections", len(open))
	require.Greater(t, len(open), least)

	for wait := 300 * time.Millisecond; wait < testTimeout; wait *= 2 { // it may end before there was a look for room
		begin := time.Now()
		_, err = (&sdp.Dialer{Fabric: fabric, Timeout: wait}).Dial("sdp", address)
		require.GreaterOrEqual(t, time.Since(begin), wait, "it did not wait")
		if errors.Is(err, syscall.ENOBUFS) {
			break
		}
	}
	wantFull(err)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var nerr net.Error
	require.ErrorAs(t, err, &nerr)
	require.True(t, nerr.Timeout())

	// The other connections work.
	both := func(c net.Conn) {
		t.Helper()
		result := make(chan error, 1)
		s := far(c)
		go func() { result <- (&flow{c: s}).accepted() }()
		require.NoError(t, (&flow{c: c, seed: 1, n: 100_000}).dialling())
		require.NoError(t, <-result)
		require.NoError(t, s.Close())
		require.NoError(t, c.Close())
	}

	// A dial that waits is served when there is room.
	result := make(chan error, 1)
	var late net.Conn
	go func() {
		var err error
		late, err = (&sdp.Dialer{Fabric: fabric, Timeout: testTimeout}).Dial("sdp", address)
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("the window was full, and a dial returned %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	both(open[0])
	both(open[1])
	open = open[2:]
	require.NoError(t, <-result)
	both(late)

	for _, c := range open[:100] {
		require.NoError(t, far(c).Close())
		require.NoError(t, c.Close())
	}
	for range 50 {
		c, err := fabric.Dial("sdp", address)
		require.NoError(t, err)
		both(c)
	}
}
