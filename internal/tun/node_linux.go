package tun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"golang.org/x/sys/unix"
)

// Node is this node: its devices and peers.
type Node struct {
	config *Config
	peers  map[int]*peer
}

// Open attaches to the devices of a node. Those that are missing it makes and configures.
func Open(c *Config) (*Node, error) {
	n := &Node{config: c, peers: map[int]*peer{}}
	err := c.eachPeer(func(node int) error {
		d, err := openDevice(c.name(node))
		if err != nil {
			return err
		}
		n.peers[node] = &peer{node: node, dials: node < c.Self, dev: d, sources: c.sources(node), queue: NewQueue(c.Queue), logf: c.Logf}
		if !d.fresh {
			return nil
		}
		return c.configure(d, node)
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

// watch returns an error when a device is not what it was any more, and nil when ctx ends.
func (n *Node) watch(ctx context.Context) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	events := os.NewFile(uintptr(fd), "netlink")
	defer events.Close()
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer context.AfterFunc(ctx, func() { events.SetReadDeadline(time.Unix(1, 0)) })()
	for b := make([]byte, 64<<10); ; {
		for _, p := range n.peers {
			if err := p.dev.check(); err != nil {
				return err
			}
		}
		if _, err := events.Read(b); ctx.Err() != nil {
			return nil
		} else if err != nil && !errors.Is(err, unix.ENOBUFS) { // of which some were lost
			return fmt.Errorf("netlink: %w", err)
		}
	}
}

// Run carries packets until ctx ends, or the listener or a device fails. It closes the listener.
func (n *Node) Run(ctx context.Context, fabric *sdp.Fabric, ln *sdp.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	failed := make(chan error, 1)
	all.Go(func() {
		defer cancel()
		failed <- n.watch(ctx)
	})
	for _, p := range n.peers {
		if p.dials {
			all.Go(func() { p.dial(ctx, fabric) })
		}
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return <-failed
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
