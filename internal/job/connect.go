package job

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/ntbnet/ntbnet/internal/activemsg"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/symheap"
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
	if err := writeHello(c, w.hello(0)); err != nil {
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

// Reasons not to map a heap.
var (
	errStrict = errors.New("option Strict")
	errFar    = errors.New("its host is not a neighbour")
	errWindow = errors.New("a part of its heap is a bridge's window, which can only be written")
)

// mapPeer maps the heap of a PE, or sets p.why.
func (w *World) mapPeer(ctx context.Context, p *peer, h *hello) error {
	if h.Fence {
		p.SetFence()
	}
	var m *symheap.Memory
	var err error
	switch {
	case w.opts.Strict:
		return errStrict
	case w.opts.common != nil:
		m, err = w.mapCommon(h)
	case h.Window != 0:
		if w.putsTo(h) {
			w.mu.Lock()
			p.SetWindow(w.across())
			w.mu.Unlock()
		}
		return errWindow
	case w.spec.Hops(h.Node) > 1:
		return errFar
	case w.opts.inProcess:
		if m = symheap.FindGo(h.Token); m == nil || len(m.Bytes) != w.heap.Size {
			return errors.New("its heap is of another process")
		}
	default:
		var f *os.File
		if f, err = heapmem.Fetch(ctx, w.spec, h.Node, w.port(h.PE), h.Token); err == nil {
			defer f.Close()
			m, err = symheap.Map(f, w.heap.Size, h.Token)
		}
	}
	if err != nil {
		return fmt.Errorf("its heap: %w", err)
	}
	p.mem = m
	p.Reach(m)
	return nil
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
