package ring

import (
	"fmt"
	"sync"

	"github.com/ntbnet/ntbnet/internal/link"
)

// Node is a process of a fabric of several hosts. Its peers are the neighbours at its links, and
// the processes that tunnels lead to.
type Node struct {
	*link.Node
	// Immutable.
	id     link.ID // that of the link.Node
	router *router

	wg sync.WaitGroup // one for each link whose device is open, and each peer that is being made
}

// Join makes n part of a fabric of several hosts. It must be called once, after
// Register. The host of the process' id must be 1 to o.Hosts. The Close of the result takes
// the place of that of n.
func Join(n *link.Node, o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	host := n.ID().Host()
	if host < 1 || host > o.Hosts {
		return nil, fmt.Errorf("ring: host %d of %d", host, o.Hosts)
	}
	joined := &Node{Node: n, id: n.ID()}
	joined.router = newRouter(joined, o)
	return joined, nil
}

// Close takes every link down and waits until its memory is released, which is when
// the last [link.Peer.Release] has been called. What was sent to routed peers reaches
// them first, if that is possible within 2 s.
func (n *Node) Close() {
	n.router.shut()
	for _, p := range n.Shut() {
		if p.Frames() != nil {
			p.Fail(link.ErrClosed)
		}
	}
	n.router.close()
	n.Node.Close()
	n.wg.Wait()
}
