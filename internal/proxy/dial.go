package proxy

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// Between rounds through all targets a connection waits this long, and twice as long each time.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second
)

// dialer connects to the targets of a forwarder.
type dialer struct {
	ctx     context.Context // of connections; immutable
	fabric  *sdp.Fabric     // as in env; immutable
	targets *targets        // immutable
	own     ownWays         // of transparent maps
}

// dial connects to the first target that answers, and notes the last one that it tried.
func (d *dialer) dial(e *lastLine) (c net.Conn, err error) {
	wait := retryMin
	for round := 0; ; round++ {
		if e.m.Transparent {
			if c, err = d.dialTarget(e); err == nil || err == errRedirectedAgain {
				return c, err
			}
		}
		for _, t := range d.targets.order(e.m) {
			e.target = t
			begun := time.Now()
			c, err = d.dialOne(t, e.m, e)
			if d.ctx.Err() == nil {
				d.targets.dialled(e.m, t, time.Since(begun), err)
			}
			if err == nil || d.ctx.Err() != nil {
				return c, err
			}
		}
		if round == e.m.Retries || !pause(d.ctx, wait/2+rand.N(wait/2)) {
			return nil, err
		}
		wait = min(2*wait, retryMax)
	}
}

// dialOne connects to a target for a client, or for a check if e is nil.
func (d *dialer) dialOne(t Endpoint, m *Map, e *lastLine) (net.Conn, error) {
	c, err := d.connect(t, m.DialTimeout)
	if err != nil {
		return nil, err
	}
	if err := sendHeader(d.ctx, c, m, e); err != nil {
		reset(c)
		return nil, err
	}
	return c, nil
}

func (d *dialer) connect(t Endpoint, timeout time.Duration) (net.Conn, error) {
	switch t.Network {
	case networkSDP:
		by := sdp.Dialer{Timeout: timeout, Fabric: d.fabric}
		return by.DialContext(d.ctx, t.Network, t.Address)
	case networkUnix:
		return d.dialUnix(t.Address, timeout)
	}
	by := tcpDialer(timeout)
	by.Control = connectAhead
	return by.DialContext(d.ctx, t.Network, t.Address)
}

func tcpDialer(timeout time.Duration) *net.Dialer {
	d := &net.Dialer{Timeout: timeout, KeepAlive: -1} // see keepAlive
	d.SetMultipathTCP(false)                          // see listen
	return d
}

// dialUnix connects to a path, whose process may be of another user.
func (d *dialer) dialUnix(path string, timeout time.Duration) (net.Conn, error) {
	ctx := d.ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	c, err := unixsock.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	return unixsock.Plain(c), nil
}
