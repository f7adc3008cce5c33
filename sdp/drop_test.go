package sdp

import (
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/stretchr/testify/require"
)

// used returns what the connections of a Fabric hold of the windows of its links.
func used(f *Fabric) (sum bounce.Used) {
	_, handlers := f.stack.up()
	for _, h := range handlers {
		u := h.pool.Used()
		sum.Pairs, sum.Slots, sum.Bytes = sum.Pairs+u.Pairs, sum.Slots+u.Slots, sum.Bytes+u.Bytes
	}
	return sum
}

// users returns how many listeners and connections a Fabric has open.
func users(f *Fabric) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.users)
}

// collected collects garbage until a condition holds.
func collected(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, what)
		}
		runtime.GC()
	}
}

// dialAndDrop makes connections, with a word on each, and drops them.
func dialAndDrop(t *testing.T, f *Fabric, address string, n int) {
	for range n {
		c, err := f.Dial("sdp", address)
		require.NoError(t, err)
		_, err = c.Write([]byte("word"))
		require.NoError(t, err)
	}
}

// A connection that the program has dropped without Close is closed. Nothing of it
// stays, on either side.
func TestDroppedConnectionsAreClosed(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		ln, err := f.Listen("sdp", ":0")
		require.NoError(t, err)
		defer ln.Close()
		n, rounds := 3000, 1
		if strings.HasSuffix(t.Name(), "/mem") {
			n, rounds = 500, 6 // its windows are smaller
		}
		ends := make(chan error, n)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { // drops its endpoint too
					got, err := io.ReadAll(c)
					if err == nil && string(got) != "word" {
						err = io.ErrUnexpectedEOF
					}
					ends <- err
				}()
			}
		}()
		drop := func(n int) {
			dialAndDrop(t, f, ln.Addr().String(), n)
			collected(t, "not all ends have read io.EOF", func() bool { return len(ends) == n })
			for range n {
				require.NoError(t, <-ends)
			}
			collected(t, "connections stay with their Fabric", func() bool { return users(f) == 1 })
			collected(t, "memory of connections stays", func() bool { return used(f) == bounce.Used{} })
		}
		drop(1) // makes the link
		before := runtime.NumGoroutine()
		for range rounds {
			drop(n)
		}
		collected(t, "goroutines stay", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// Data that arrived and was not read when a connection was dropped resets it, as Close
// does.
func TestDroppedConnectionWithUnreadDataIsReset(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		b := func() net.Conn {
			_, b, _, err := pipe(f)
			require.NoError(t, err)
			_, err = b.Write([]byte("unread"))
			require.NoError(t, err)
			return b
		}()
		got := make(chan error, 1)
		go func() { _, err := b.Read(make([]byte, 1)); got <- err }()
		collected(t, "no error", func() bool { return len(got) == 1 })
		require.ErrorContains(t, <-got, "connection reset by peer")
		require.NoError(t, b.Close())
	})
}

// A connection with a goroutine in a call is not garbage.
func TestConnectionInUseIsNotCollected(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		b, results := func() (net.Conn, chan error) {
			a, b, _, err := pipe(f)
			require.NoError(t, err)
			results := make(chan error, 1)
			go func() { _, err := a.Read(make([]byte, 1)); results <- err }()
			return b, results
		}()
		for range 20 {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		_, err := b.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, <-results)
		b.Close()
	})
}

// A listener that the program has dropped is closed, as one of package net is: its port is
// free again, and a connection that waited for Accept is reset.
func TestDroppedListenersAreClosed(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for _, network := range []string{"sdp", "tcp"} {
			address, c := func() (string, net.Conn) {
				ln, err := f.Listen(network, "127.0.0.1:0")
				require.NoError(t, err)
				c, err := f.Dial(network, ln.Addr().String())
				require.NoError(t, err)
				return ln.Addr().String(), c
			}()
			got := make(chan error, 1)
			go func() { _, err := c.Read(make([]byte, 1)); got <- err }()
			collected(t, "a connection that nobody accepts is left", func() bool { return len(got) == 1 })
			require.Error(t, <-got)
			require.NoError(t, c.Close())
			collected(t, "a listener stays with its Fabric", func() bool { return users(f) == 0 })
			_, err := f.Dial(network, address)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			ln, err := f.Listen(network, address)
			require.NoError(t, err)
			require.NoError(t, ln.Close())
		}
	})
}

// A listener with a goroutine in Accept is not garbage.
func TestListenerInUseIsNotCollected(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for _, network := range []string{"sdp", "tcp"} {
			address, results := func() (string, chan error) {
				ln, err := f.Listen(network, "127.0.0.1:0")
				require.NoError(t, err)
				results := make(chan error, 1)
				go func() {
					c, err := ln.Accept()
					if err == nil {
						c.Close()
					}
					results <- err
				}()
				return ln.Addr().String(), results
			}()
			for range 20 {
				runtime.GC()
				time.Sleep(time.Millisecond)
			}
			c, err := f.Dial(network, address)
			require.NoError(t, err)
			require.NoError(t, <-results)
			c.Close()
			collected(t, "a listener stays with its Fabric", func() bool { return users(f) == 0 })
		}
	})
}

// The collector's goroutines are in no bubble, and could not close a connection of one.
func TestConnectionsOfABubbleAreLeftToTheirFabric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, "mem:bubble")
		func() {
			_, _, _, err := pipe(f)
			require.NoError(t, err)
		}()
		for range 5 {
			runtime.GC()
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, users(f))
		require.NoError(t, f.Close())
	})
}

// The methods by which programs set options of a *net.TCPConn exist, and fail on a closed
// connection.
func TestTCPOptionsAreAccepted(t *testing.T) {
	type tcpOptions interface {
		SetNoDelay(bool) error
		SetKeepAlive(bool) error
		SetKeepAlivePeriod(time.Duration) error
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, _ := mustPipe(t, f)
		var c tcpOptions = a
		set := func() []error {
			return []error{
				c.SetNoDelay(true), c.SetNoDelay(false), c.SetKeepAlive(true), c.SetKeepAlivePeriod(time.Minute),
				c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}),
			}
		}
		for _, err := range set() {
			require.NoError(t, err)
		}
		require.NoError(t, a.Close())
		for _, err := range set() {
			require.ErrorIs(t, err, net.ErrClosed)
			op := new(net.OpError)
			require.ErrorAs(t, err, &op)
			require.Equal(t, "set", op.Op)
		}
	})
}
