package tun

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/ntbnet/ntbnet/sdp"
)

// Node is this node: its devices and peers.
type Node struct {
	config *Config
	peers  map[int]*peer
}

// Open attaches to the devices of a node. Those that are missing it makes and configures.
func Open(c *Config) (*Node, error) {
	n := &Node{config: c, peers: map[int]*peer{}}
	err := c.eachPeer(func(l *netlink, node int) error {
		d, err := openDevice(c.name(node))
		if err != nil {
			return err
		}
		n.peers[node] = &peer{node: node, dials: node < c.Self, dev: d, sources: c.sources(node), queue: NewQueue(c.Queue), logf: c.Logf}
		if !d.fresh {
			return nil
		}
		return c.configure(l, d, node)
	})
	if err != nil {
		n.Close()
		return nil, err
	}
	for _, p := range n.peers {
		p.dev.settle(false)
	}
	return n, nil
}

// Close gives up the devices. Run must have returned.
func (n *Node) Close() {
	for _, p := range n.peers {
		p.dev.Close()
	}
}

// errOwnNode is why processes of this node are refused.
var errOwnNode = errors.New("it is for other nodes")

// Listen listens for peers.
func (n *Node) Listen(ctx context.Context, fabric *sdp.Fabric) (*sdp.Listener, error) {
	lc := sdp.ListenConfig{Fabric: fabric, Allow: func(sdp.Peer) error { return errOwnNode }, AllowUnknown: true}
	ln, err := lc.Listen(ctx, sdp.Network, fmt.Sprintf(":%d", Port))
	if err != nil {
		return nil, err
	}
	return ln.(*sdp.Listener), nil
}

// Run carries packets until ctx ends or the listener fails. It closes the listener.
func (n *Node) Run(ctx context.Context, fabric *sdp.Fabric, ln *sdp.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for _, p := range n.peers {
		if p.dials {
			all.Go(func() { p.dial(ctx, fabric) })
		}
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		conn := c.(*sdp.Conn)
		p := n.peers[nodeOf(conn)]
		if p == nil || p.dials {
			abort(conn)
			continue
		}
		all.Go(func() { p.accept(ctx, conn) })
	}
}

// nodeOf returns the node at the other end of a connection, 0 if it is this one.
func nodeOf(c *sdp.Conn) int {
	a, ok := c.RemoteAddr().(*sdp.Addr)
	if !ok {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(a.Host, "node"))
	return n
}
