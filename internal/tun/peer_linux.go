package tun

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// peer is another node: its device, and a connection to it at most.
type peer struct {
	// Immutable.
	node    int
	dials   bool // this node: of two the one with the higher number does
	dev     *device
	sources []netip.Prefix
	queue   *Queue
	logf    func(format string, args ...any)

	count counters
	busy  atomic.Bool // a connection is used, or being made
	up    atomic.Bool
	// The log, for who has set busy.
	said    string    // the last line
	mayFail time.Time // when there may be another one about a failure
	mayCome time.Time // and one about a connection
	late    *time.Timer
	lateAt  time.Time // of late
}

// sayTime is how far apart the lines of a log about a peer are at least, whatever the peer does.
const sayTime = time.Second

// sayUp logs that there is a connection, later if that has been said just now, and if there still is one then.
func (p *peer) sayUp() {
	now := time.Now()
	if !now.Before(p.mayCome) {
		p.mayCome = now.Add(sayTime)
		p.logf("node%d is up", p.node)
		return
	}
	if p.late == nil || !p.late.Stop() {
		p.lateAt, p.mayCome = p.mayCome, p.mayCome.Add(sayTime)
	}
	p.late = time.AfterFunc(p.lateAt.Sub(now), func() {
		if p.up.Load() {
			p.logf("node%d is up", p.node)
		}
	})
}

const (
	helloTime = 2 * time.Second // that a peer has for its hello
	dialTime  = 5 * time.Second
	pauseTime = 100 * time.Millisecond // between two dials
)

// dial connects to the peer, and again when that has ended, until ctx ends.
func (p *peer) dial(ctx context.Context, fabric *sdp.Fabric) {
	for ctx.Err() == nil {
		p.busy.Store(true)
		p.say(ctx, p.dialOnce(ctx, fabric))
		select {
		case <-time.After(pauseTime):
		case <-ctx.Done():
		}
	}
}

func (p *peer) dialOnce(ctx context.Context, fabric *sdp.Fabric) error {
	short, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := fabric.DialContext(short, "sdp", fmt.Sprintf("node%d:%d", p.node, Port))
	if err != nil {
		return err
	}
	return p.use(ctx, c.(*sdp.Conn))
}

// accept uses a connection that the peer has made, if there is no other one.
func (p *peer) accept(ctx context.Context, c *sdp.Conn) {
	if !p.busy.CompareAndSwap(false, true) {
		p.count.refused.Add(1)
		abort(c)
		return
	}
	err := p.use(ctx, c)
	p.say(ctx, err)
	p.busy.Store(false)
}

// abort ends a connection without a wait for what was written.
func abort(c *sdp.Conn) {
	c.SetLinger(0)
	c.Close()
}

// say logs why there is no connection, unless that was the last line. If the device is gone, Node.Run says so.
func (p *peer) say(ctx context.Context, err error) {
	if err == nil || errors.Is(err, errGone) || ctx.Err() != nil {
		return
	}
	line, now := fmt.Sprintf("no connection to node%d: %v", p.node, err), time.Now()
	if line != p.said && !now.Before(p.mayFail) {
		p.said, p.mayFail = line, now.Add(sayTime)
		p.logf("%s", line)
	}
}

// use carries packets over a connection until it ends.
func (p *peer) use(ctx context.Context, c *sdp.Conn) error {
	defer abort(c)
	defer context.AfterFunc(ctx, func() { abort(c) })()
	if err := p.greet(c); err != nil {
		return err
	}
	p.drain()
	r := &receiver{conn: c, sources: p.sources, write: p.dev.write, count: &p.count}
	s := &sender{conn: c, dev: p.dev, queue: p.queue, count: &p.count, heard: &r.heard, waits: dialerWaits}
	if !p.dials {
		s.waits, r.beat = accepterWaits, p.rouse
	}
	ends := make(chan error, 2)
	go func() { ends <- s.run() }()
	go func() { ends <- r.run() }()
	if err := p.dev.carrier(true); err != nil {
		p.logf("node%d: %v", p.node, err)
	}
	p.dev.settle(true)
	p.up.Store(true)
	p.count.connects.Add(1)
	p.said = ""
	p.sayUp()

	err := <-ends
	p.up.Store(false)
	p.dev.carrier(false)
	abort(c)
	p.rouse() // the sender finds the connection closed
	<-ends
	s.close()
	return err
}

// rouse has the sender send a heartbeat now, if it waits for a packet.
func (p *peer) rouse() { p.dev.file.SetReadDeadline(time.Unix(1, 0)) }

// greet exchanges hellos, and has the kernel hand over what the peer's takes.
func (p *peer) greet(c *sdp.Conn) error {
	mtu, err := p.dev.readMTU()
	if err != nil {
		return err
	}
	own, its := newHello(mtu, p.dev.takes), hello{}
	if err := c.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	if err := binary.Write(c, binary.LittleEndian, own); err != nil {
		return err
	}
	if err := binary.Read(c, binary.LittleEndian, &its); err != nil {
		return fmt.Errorf("its hello: %w", err)
	}
	if err := errors.Join(its.check(own), c.SetReadDeadline(time.Time{})); err != nil {
		return err
	}
	return p.dev.offload(own.Offloads & its.Offloads)
}

// drain drops what the kernel has kept since an earlier connection.
func (p *peer) drain() {
	p.dev.file.SetReadDeadline(time.Time{})
	b := make([]byte, maxFrame)
	for {
		if _, err := p.dev.read(false, b, nil); err != nil {
			return
		}
		p.count.down.Add(1)
	}
}
