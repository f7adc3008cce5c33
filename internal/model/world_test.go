package model

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtime"
	"github.com/ntbnet/ntbnet/internal/virtual"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/sdp"
)

// bed describes hosts in a row, with a link between any two neighbours.
type bed struct {
	link   ntbtime.Link
	nodes  int
	window int           // bytes in each direction
	spin   string        // option of the fabric: "0" parks at once
	poll   time.Duration // a poll takes that long
	// What a processor takes for a call and for a byte that it copies, in ns.
	call int
	copy float64
	// How late credit comes once a connection was made.
	late time.Duration
}

// world is a bed that is open, in a bubble of its own.
type world struct {
	bed
	t       *testing.T
	fabrics []*sdp.Fabric
	devices []*ntbtime.Device
	rights  map[int]*ntbtime.Device // by node: that of its latest session with the next node
}

// patience is how long a row may take, by the bubble's clock.
const patience = 10 * time.Second

// fails reports a failure, and whether there is one. A link with faults fails by its figures.
func (w *world) fails(err error) bool {
	if err != nil && w.link.LoseBell == 0 && w.late == 0 {
		w.t.Error(err)
	}
	return err != nil
}

// How long polls take. With rough ones a bubble needs less of the world's time, and figures are as exact.
const (
	fine  = 2 * time.Nanosecond
	rough = 20 * time.Nanosecond
)

// standsStill is how long a bubble may take by the clock of the world. Its own deadlines end all else.
const standsStill = 5 * time.Minute

// open opens a bed in a bubble, and calls f in it.
func open(t *testing.T, b bed, f func(w *world)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // goroutines that are ready at the same time run in the same order
	guard := time.AfterFunc(standsStill, func() {
		buf := make([]byte, 4<<20)
		fmt.Fprintf(os.Stderr, "the clock of %s stands still\n%s\n", t.Name(), buf[:runtime.Stack(buf, true)])
		os.Exit(3)
	})
	defer guard.Stop()
	virtual.Poll = func() { time.Sleep(b.poll) }
	virtual.Wait = func() { time.Sleep(5 * time.Nanosecond) }
	defer func() { virtual.Poll, virtual.Wait = nil, nil }()
	synctest.Test(t, func(t *testing.T) {
		w := &world{bed: b, t: t, rights: map[int]*ntbtime.Device{}}
		defer time.Sleep(time.Minute) // all that is left ends
		defer w.close()
		w.openAll()
		f(w)
	})
}

func (w *world) openAll() {
	ends := map[[2]int]ntb.Attachment{}
	for i := 1; i < w.nodes; i++ {
		ends[[2]int{i, i + 1}], ends[[2]int{i + 1, i}] = ntbattach.Ends(func() (a, b ntb.Device) {
			a, b = ntbmem.Pair(w.window)
			x, y := ntbtime.Pair(a, b, w.link)
			w.devices = append(w.devices, x, y)
			w.rights[i] = x
			return x, y
		})
	}
	for i := 1; i <= w.nodes; i++ {
		f, err := sdp.OpenWith(w.spec(i), sdp.Devices{Attach: func(wire sdp.Wire) (ntb.Attachment, error) {
			return ends[[2]int{wire.Node, wire.Neighbour}], nil
		}})
		if err != nil {
			w.t.Fatal(err)
		}
		w.fabrics = append(w.fabrics, f)
	}
	time.Sleep(time.Second) // links and routes
	synctest.Wait()
}

func (w *world) close() {
	for _, f := range w.fabrics {
		w.fails(f.Close())
	}
}

func (w *world) spec(node int) string {
	return fmt.Sprintf("line:model?node=%d&nodes=%d&backend=mem&spin=%s&window=%d", node, w.nodes, w.spin, w.window)
}

// conn is a connection whose calls take a processor's time.
type conn struct {
	*sdp.Conn
	bed
}

func (c *conn) spend(n int) {
	if d := time.Duration(c.call) + time.Duration(c.copy*float64(n)); d > 0 {
		time.Sleep(d)
	}
}

func (c *conn) Write(p []byte) (int, error) {
	c.spend(0)
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.spend(n)
	return n, err
}

// connect makes a connection from one node to another.
func (w *world) connect(from, to int) (a, b *conn) {
	w.t.Helper()
	ln, err := w.fabrics[to-1].Listen("sdp", ":7")
	if err != nil {
		w.t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			w.t.Error(err)
		}
		accepted <- c
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := w.fabrics[from-1].DialContext(ctx, "sdp", fmt.Sprintf("node%d:7", to))
	if err != nil {
		w.t.Fatal(err)
	}
	d := <-accepted
	if d == nil {
		w.t.FailNow()
	}
	for _, c := range []net.Conn{c, d} {
		w.fails(c.SetDeadline(time.Now().Add(patience)))
	}
	for _, d := range w.devices {
		d.SetLate(w.late, w.window/2) // queues lie behind, and what sets connections up is done
	}
	return &conn{c.(*sdp.Conn), w.bed}, &conn{d.(*sdp.Conn), w.bed}
}

// roundTrip returns the median of n round trips with messages of size bytes, in µs.
func (w *world) roundTrip(a, b io.ReadWriter, size, n int) float64 {
	var echo sync.WaitGroup
	echo.Go(func() {
		p := make([]byte, size)
		for range n {
			if _, err := io.ReadFull(b, p); w.fails(err) {
				return
			}
			if _, err := b.Write(p); w.fails(err) {
				return
			}
		}
	})
	all := make([]time.Duration, n)
	p := make([]byte, size)
	for i := range all {
		begin := time.Now()
		_, err := a.Write(p)
		if err == nil {
			_, err = io.ReadFull(a, p)
		}
		if w.fails(err) {
			return float64(patience) / 1e3
		}
		all[i] = time.Since(begin)
	}
	echo.Wait()
	slices.Sort(all)
	return float64(all[n/2]) / 1e3
}

// stream returns the rate of total bytes one way, written in pieces, in bytes per second.
func (w *world) stream(a io.Writer, b io.Reader, piece, total int) float64 {
	begin := time.Now()
	go func() {
		p := make([]byte, piece)
		for sent := 0; sent < total; sent += piece {
			if _, err := a.Write(p); w.fails(err) {
				return
			}
		}
	}()
	p, got := make([]byte, 64<<10), 0
	for got < total {
		n, err := b.Read(p)
		if got += n; w.fails(err) {
			break
		}
	}
	return float64(got) / time.Since(begin).Seconds()
}
