package link

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Services by number, the same in every process.
const (
	ServiceSDP   = 1
	numServices  = 8
	doorbellBit  = 0
	maxSetupData = setupSize - setupHeader
)

// Errors that end a link.
var (
	// ErrClosed reports that this process closed the link.
	ErrClosed = errors.New("link: closed")
	// ErrDown reports that the peer is gone.
	ErrDown = errors.New("link: down")
	// ErrProtocol reports that the peer wrote what no peer may write.
	ErrProtocol = errors.New("link: protocol violation")
	// ErrVersion reports that the peer uses another version.
	ErrVersion = errors.New("link: versions differ, update the side with the lower one")
)

// Service is a layer above, to which peers send set-up messages.
type Service interface {
	// Open is called when a peer is up, before its first message.
	Open(p *Peer) Handler
}

// Handler is what a service has for one peer: it handles the peer's messages. Its methods
// are called one at a time, and must not block.
type Handler interface {
	// Message handles a set-up message. m is valid until Message returns. An
	// error takes the link down.
	Message(m []byte) error
	// Down is called once, after the last Message.
	Down(err error)
}

// Node is this process, as its peers see it.
type Node struct {
	id       ID
	services [numServices]Service // set before the first Up

	mu     lock.Mutex[lock.Node]
	peers  map[*Peer]struct{} // guarded by mu
	closed bool               // guarded by mu
	wg     sync.WaitGroup     // one for each peer whose device is open
}

// NewNode returns a Node without peers.
func NewNode(id ID) *Node { return &Node{id: id, peers: map[*Peer]struct{}{}} }

// ID returns the id of this process.
func (n *Node) ID() ID { return n.id }

// Register sets the service with that number. It must be called before the first
// Up.
func (n *Node) Register(number int, s Service) { n.services[number] = s }

// Up brings a link up over dev, takes ownership of dev, and returns the peer at its
// other end. It waits for the other side until ctx ends.
func (n *Node) Up(ctx context.Context, dev ntb.Device) (*Peer, error) {
	return n.up(Bridge(dev), func(p *Peer) error { return p.bringUp(ctx) })
}

// UpOver returns the peer with an id to which path leads, and takes ownership of path. Nothing is
// exchanged: the other side does the same, as both know, and is of the same version.
func (n *Node) UpOver(path Path, id ID) (*Peer, error) {
	return n.up(path, func(p *Peer) error {
		p.id = id
		return p.open()
	})
}

// up adds a peer, and takes ownership of path. bring brings it up.
func (n *Node) up(path Path, bring func(*Peer) error) (*Peer, error) {
	p, err := newPeer(n, path)
	n.mu.Lock()
	if err == nil && n.closed {
		err = ErrClosed
	}
	if err != nil {
		n.mu.Unlock()
		path.Close()
		return nil, err
	}
	n.peers[p] = struct{}{}
	n.wg.Add(1)
	n.mu.Unlock()

	p.Hold() // run may end before bring does
	defer p.Release()
	go p.run()
	if err := bring(p); err != nil {
		p.Fail(err)
		<-p.done
		return nil, err
	}
	return p, nil
}

// Peers returns the peers that are up.
func (n *Node) Peers() []*Peer {
	return slices.DeleteFunc(n.all(), func(p *Peer) bool { return !p.Up() })
}

// Shut makes Up return ErrClosed from now on, and returns the peers that are not down.
func (n *Node) Shut() []*Peer {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	return n.all()
}

// Close takes every link down and waits until its memory is released, which is when
// the last [Peer.Release] has been called.
func (n *Node) Close() {
	// The lock is not held meanwhile, since other peers need it.
	for _, p := range n.Shut() {
		p.Fail(ErrClosed)
	}
	n.wg.Wait()
}

// all returns the peers that are not down. None is added once n is closed.
func (n *Node) all() []*Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.peers))
}

func (n *Node) remove(p *Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.peers, p)
}
