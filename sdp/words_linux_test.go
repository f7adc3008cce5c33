//go:build linux && (amd64 || arm64)

package sdp

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// echoer is a client that dials, has a few bytes echoed again and again, and dials again when that fails. One that is brief dials
// each time.
type echoer struct {
	brief          bool
	rounds, resets atomic.Int64
}

func (e *echoer) run(from *Fabric, address string, over *atomic.Bool) {
	var c net.Conn
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for b := make([]byte, 100); !over.Load(); {
		var err error
		if c == nil {
			if c, err = from.Dial("sdp", address); err != nil {
				c = nil
				time.Sleep(time.Millisecond)
				continue
			}
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err = c.Write(b); err == nil {
			_, err = io.ReadFull(c, b)
		}
		if err != nil {
			e.resets.Add(1)
			c.Close()
			c = nil
			continue
		}
		e.rounds.Add(1)
		if e.brief {
			c.Close()
			c = nil
		}
	}
}

// openDevice is a device that is not closed while publish32 stores.
type openDevice struct {
	ntb.Device
	mu     sync.Mutex
	closed bool // guarded by mu
}

// publish32 stores to the window, and reports whether it did: it does not once the device is closed.
func (d *openDevice) publish32(off int, v uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	out := d.Outbound()
	out.Publish32(off, v)
	return true
}

func (d *openDevice) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	return d.Device.Close()
}

// Whatever a peer stores into one word of a link, by mistake or not: connections go on, or end and new ones begin.
// NTBNET_LONG has all values for each word.
func TestNoWordStallsConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, fileSize))
	testWords(t, "file:"+path, "file:"+path)
}

// testWords opens two nodes whose ends of a wire are given, and stores into words of the second one's window, as the first one can,
// while connections echo.
func testWords(t *testing.T, right, left string) {
	t.Helper()
	leak.Check(t)
	line := "line:" + fabrictest.Name(t)
	var device atomic.Pointer[openDevice] // the first one's, of the session that is now
	var victim atomic.Pointer[ntb.Device] // the second one's
	one, err := OpenWith(line+"?node=1&nodes=2&slots=2&frame=512&right="+right, Devices{Wrap: func(a, b ntb.Device) (ntb.Device, ntb.Device) {
		d := &openDevice{Device: a}
		device.Store(d)
		return d, b
	}})
	require.NoError(t, err)
	defer one.Close()
	two, err := OpenWith(line+"?node=2&nodes=2&slots=2&frame=512&left="+left, Devices{Wrap: func(a, b ntb.Device) (ntb.Device, ntb.Device) {
		victim.Store(&a)
		return a, b
	}})
	require.NoError(t, err)
	defer two.Close()
	ln, err := two.Listen("sdp", ":0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	var over atomic.Bool
	var clients [12]echoer
	ended := make(chan struct{})
	for i := range clients {
		clients[i].brief = i == 0
		go func() {
			clients[i].run(one, ln.Addr().String(), &over)
			ended <- struct{}{}
		}()
	}
	var longest time.Duration
	goOn := func(what string) {
		start := time.Now()
		for i := range clients {
			e := &clients[i]
			for before := e.rounds.Load(); e.rounds.Load() < before+2; time.Sleep(20 * time.Microsecond) {
				require.Less(t, time.Since(start), time.Minute, "client %d, %s", i, what)
			}
		}
		longest = max(longest, time.Since(start))
	}
	goOn("first")

	const lanes, notes = 0x2000, 0x5000 // see scribbler_test.go and docs/protocol/link.md
	require.EqualValues(t, 1, ntb.Load32((*victim.Load()).Inbound(), lanes+0x1000)%64, "the first message has its number elsewhere")
	var words []int
	for at := 0; at < 0x480; at += 4 {
		words = append(words, at)
	}
	for at := 0x1000; at < notes+8*64; at += 4 {
		words = append(words, at)
	}
	stores := 0
	for i, at := range words {
		values := []uint32{0, ^uint32(0), 1 << (at / 4 % 32), 0x9e3779b9 * uint32(at+1)}
		if os.Getenv("NTBNET_LONG") == "" {
			if at >= 0x1000+8*256 && at < notes {
				continue // of the queue, some messages
			}
			values = values[i%4:][:1]
		}
		for _, v := range values {
			for !device.Load().publish32(lanes+at, v) { // the store before this one may have ended the session
				time.Sleep(20 * time.Microsecond)
			}
			stores++
			goOn(fmt.Sprintf("%#x at %#x", v, at))
		}
	}
	over.Store(true)
	resets := int64(0)
	for i := range clients {
		<-ended
		resets += clients[i].resets.Load()
	}
	require.NoError(t, ln.Close())
	<-served
	t.Logf("%d stores, %d connections reset, at most %v until all went on", stores, resets, longest.Round(time.Millisecond))
}
