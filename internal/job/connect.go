package job

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/ntbnet/ntbnet/internal/activemsg"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/sdp"
)

// connect makes the connection for requests to a PE, and maps its heap if possible.
func (w *World) connect(ctx context.Context, pe int) error {
	c, err := w.dial(ctx, pe)
	if err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { c.Close() })
	h, err := w.introduce(c)
	if err == nil && h.PE != pe {
		err = fmt.Errorf("%w: PE %d answers for PE %d", errRefused, h.PE, pe)
	}
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return fmt.Errorf("PE %d: %w", pe, err)
	}
	p := w.peers[pe]
	w.mu.Lock()
	p.SetChannel(activemsg.NewChannel(c)) // from here on the PE is told of failures
	w.mu.Unlock()
	p.node = h.Node
	w.parts[pe] = h.Place
	p.why = w.mapPeer(ctx, p, h)
	return nil
}

func (w *World) introduce(c net.Conn) (*hello, error) {
	if err := writeHello(c, w.hello()); err != nil {
		return nil, err
	}
	h, err := readHello(c)
	if err != nil {
		return nil, err
	}
	if err := w.fits(h); err != nil {
		return nil, err
	}
	if h.Refused != "" {
		return nil, fmt.Errorf("%w: PE %d says: %.200s", errRefused, h.PE, h.Refused)
	}
	return h, nil
}

// Pauses between dials of a PE that is not there yet.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// dial searches all hosts of the fabric for a PE until it is there, and connects to
// it.
func (w *World) dial(ctx context.Context, pe int) (net.Conn, error) {
	port := strconv.Itoa(w.port(pe))
	d := &sdp.Dialer{Fabric: w.fabric}
	var differs error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var err error
		for i := range max(1, w.spec.Nodes) {
			host := "localhost"
			if w.spec.Nodes > 0 {
				host = spec.NodeName((pe+i)%w.spec.Nodes + 1)
			}
			var c net.Conn
			c, err = w.dialHost(ctx, d, host+":"+port)
			if err == nil {
				return c, nil
			}
			if fabric.Misfit(err) {
				differs = err // the neighbour ends because of it, and is not there later
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if differs != nil {
				err = differs
			}
			return nil, fmt.Errorf("PE %d: %w", pe, err)
		}
	}
}

// hostLimit is how long dial waits for one host, since the PE may be on another.
const hostLimit = time.Second

func (w *World) dialHost(ctx context.Context, d *sdp.Dialer, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, hostLimit)
	defer cancel()
	return d.DialContext(ctx, sdp.Network, address)
}
