package sdp

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/listen"
)

// stack is SDP on one fabric. The Fabrics of this process on that fabric share it.
type stack struct {
	name      string         // by which Fabrics share it; constant after openStack
	opened    chan struct{}  // closed when fabric and err are known
	fabric    *fabric.Fabric // constant once opened is closed
	err       error          // why there is no fabric; constant once opened is closed
	listeners *listen.Table
	opts      bounce.Options
	served    func() []*Fabric // of which the status has the connections: those of the member where this stack took over; constant after start
	supplied  bool             // its devices are those of OpenWith; constant after openStack
	bubble    bool             // it was made in a bubble of testing/synctest; constant
	port      atomic.Uint32    // counts the ports of dialling endpoints
	kernel    inetdiag.Kernel  // closed with the fabric
	localhost atomic.Pointer[resolved]
	silences  [spec.MaxNodes + 1]silence // of other nodes, by number
	holders   sync.Map                   // by port of this host, the user at which a dial has reached it last

	refs int // number of Fabrics; guarded by stacks.mu

	mu       lock.Mutex[lock.Stack]
	fabrics  map[*Fabric]struct{}  // those that are open, for the status; guarded by mu
	tcpPorts portSet               // for dialling endpoints of network "tcp"; guarded by mu
	handlers map[*handler]struct{} // links that are up; guarded by mu
	ended    FabricStats           // of links that are down; guarded by mu
	quotas   map[int]*bounce.Quota // of other users, by number; guarded by mu
}

// handler is SDP with one peer.
type handler struct {
	stack *stack
	pool  *bounce.Pool
	dials *dial.Table
	who   *Peer // user of the process at the other end; nil if the kernel does not know; immutable
}

// stacks are the stacks of this process, by fabric.
var stacks = struct {
	mu   lock.Mutex[lock.Stacks]
	open map[string]*stack // guarded by mu
}{open: map[string]*stack{}}

// openStack joins a fabric, or shares in it. Fabrics share if they name it by the
// same words. With devices, which are those of OpenWith, there is nothing to share yet.
func openStack(name string, devices *Devices) (*stack, error) {
	var err error
	if name == "" {
		name, _, err = spec.Default()
	}
	if err != nil {
		return nil, err
	}
	spec, err := spec.Parse(name)
	if err != nil {
		return nil, err
	}
	if devices != nil {
		devices.put(spec)
	}
	if inBubble() {
		if err := forBubble(spec); err != nil {
			return nil, err
		}
	}
	stacks.mu.Lock()
	s := stacks.open[name]
	if s != nil && devices != nil {
		stacks.mu.Unlock()
		return nil, fmt.Errorf("fabric %s is open already: %w", name, syscall.EBUSY)
	}
	if s != nil {
		if err := s.usable(); err != nil {
			stacks.mu.Unlock()
			return nil, err
		}
		s.refs++
		stacks.mu.Unlock()
		<-s.opened
		if s.err != nil || s.fabric.Lost() == nil {
			return s, s.err
		}
		// Those who have it go on with it. This one meets those that come now, unless it would be
		// without the devices.
		why, supplied := s.fabric.Lost(), s.supplied
		if !supplied {
			s.forget()
		}
		s.release()
		if supplied {
			return nil, why
		}
		return openStack(name, nil)
	}
	s = newStack(bounce.Options{Buffer: spec.Buffer, Spin: spec.Spin, DMAThreshold: spec.DMAFrom})
	s.name, s.refs, s.supplied = name, 1, devices != nil
	stacks.open[name] = s
	stacks.mu.Unlock()
	// No lock is held, since nodes that run are asked, and one of them may be stopped.
	s.fabric, s.err = fabric.Open(spec, s.start)
	if s.err != nil {
		stacks.mu.Lock()
		delete(stacks.open, name)
		stacks.mu.Unlock()
	}
	close(s.opened)
	return s, s.err
}

func newStack(o bounce.Options) *stack {
	o.Queue = new(wait.Queue)
	s := &stack{
		opened: make(chan struct{}), listeners: listen.NewTable(), opts: o, bubble: inBubble(), handlers: map[*handler]struct{}{}, quotas: map[int]*bounce.Quota{},
		fabrics: map[*Fabric]struct{}{},
	}
	s.served = s.open
	s.port.Store(rand.Uint32N(dialPorts))
	return s
}

// host is the other processes of this host, as listeners need them.
type host struct{ *fabric.Fabric }

// HandedOver implements listen.Host. Nobody is known to have held the port.
func (h host) HandedOver(port int) bool { return h.Fabric.HandedOver(port, -1) }

// TooMany implements listen.Host.
func (h host) TooMany(p *link.Peer) { h.Forbid(tooMany(p)) }

func (s *stack) start(f *fabric.Fabric) {
	s.listeners.Host = host{f}
	f.Describe(s.connections, s.describe)
	f.Node().Register(link.ServiceSDP, s)
	f.Watch(s.lost)
	f.OnTakeover(s.takeOver)
}

// takeOver opens the fabric of the owner of this host's links, beside the one that this process is a member in.
func (s *stack) takeOver(spec *spec.Spec) (leave func(), err error) {
	own := newStack(s.opts)
	own.name, own.served = s.name, s.served
	if own.fabric, err = fabric.Open(spec, own.start); err != nil {
		return nil, err
	}
	return func() {
		own.fabric.Close()
		own.kernel.Close()
	}, nil
}

// lost is called when other processes no longer find this one.
func (s *stack) lost(why error) {
	if n := s.listeners.Fail(why); n > 0 {
		slog.Error("sdp: listeners end, since other processes no longer find them", "fabric", s.name, "listeners", n, "reason", why)
	}
}

// forget makes those who come later open another one.
func (s *stack) forget() {
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	if stacks.open[s.name] == s {
		delete(stacks.open, s.name)
	}
}

// release ends one Fabric's share. The last one leaves the fabric.
func (s *stack) release() {
	stacks.mu.Lock()
	s.refs--
	last := s.refs == 0
	if last && stacks.open[s.name] == s {
		delete(stacks.open, s.name)
	}
	stacks.mu.Unlock()
	if last {
		s.fabric.Close() // Close may have to wait for a lease
		s.kernel.Close()
	}
}

// Ports of dialling endpoints. They are not claimed, since they only distinguish
// connections of one process.
const (
	firstDialPort = 32768
	dialPorts     = 16384
)

func (s *stack) dialPort() int { return firstDialPort + int(s.port.Add(1)%dialPorts) }

// takePort takes a port for the dialling endpoint of a connection of network "tcp". No
// other such connection of this process has it. takePort returns false if there is
// none.
func (s *stack) takePort() (uint16, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tcpPorts.take()
}

func (s *stack) releasePort(port uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tcpPorts.release(port)
}

// Open is called by internal/link when a peer is up.
func (s *stack) Open(p *link.Peer) link.Handler {
	opts := s.opts
	opts.Quota = s.quotaOf(p)
	pool := bounce.NewPool(p, opts)
	h := &handler{stack: s, pool: pool, dials: dial.NewTable(pool)}
	if u := p.Caps().User; u != nil {
		h.who = &Peer{PID: u.PID, UID: u.UID, GID: u.GID, Groups: u.Groups}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[h] = struct{}{}
	return h
}

// Message handles a set-up message of the peer.
func (h *handler) Message(m []byte) error {
	msg, err := hello.Parse(m)
	if err == nil {
		switch msg := msg.(type) {
		case *hello.Hello:
			if msg.Asks() {
				err = h.stack.answer(h.pool, msg)
			} else {
				err = h.stack.listeners.Hello(h.pool, msg)
			}
		case *hello.HelloAck:
			err = h.dials.Ack(msg)
		case *hello.Refuse:
			err = h.dials.Refuse(msg)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: from %v: %w", link.ErrProtocol, h.pool.Peer().ID(), err)
	}
	return nil
}

// Down is called when the link is down.
func (h *handler) Down(error) {
	h.dials.Down()
	h.pool.Down()
	var sum FabricStats
	h.addTo(&sum)
	h.stack.mu.Lock()
	defer h.stack.mu.Unlock()
	delete(h.stack.handlers, h)
	h.stack.ended.add(&sum)
}

// add adds the counters of links.
func (s *FabricStats) add(o *FabricStats) {
	s.Stats.Add(o.Stats)
	s.LinkDoorbells += o.LinkDoorbells
	s.Rescues += o.Rescues
}

func (h *handler) addTo(s *FabricStats) {
	sum, _ := h.pool.Stats()
	s.Stats.Add(sum)
	link := h.pool.Peer().Stats()
	s.LinkDoorbells += link.Doorbells
	s.Rescues += link.Rescues
}

// stats returns the counters of all links. Connections that outlive their link
// count as of the moment when it went down.
func (s *stack) stats() FabricStats {
	sum, handlers := s.up()
	sum.Links = len(handlers)
	sum.Refused = Refusals(s.fabric.Refused())
	sum.ProcessorTaken = wait.Taken()
	for _, h := range handlers {
		h.addTo(&sum)
	}
	return sum
}

// up returns the links that are up, and the counters of those that are down. The caller
// sums them up without the lock, since new links wait for that.
func (s *stack) up() (ended FabricStats, handlers []*handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, slices.Collect(maps.Keys(s.handlers))
}

// describe says of which version messages are, how much memory of queues that ended the links keep, and how much that may
// be.
func (s *stack) describe(p *status.Process) {
	p.Messages = hello.Version
	_, handlers := s.up()
	for _, h := range handlers {
		u := h.pool.Used()
		p.Warm, p.WarmRoom = p.Warm+u.Warm, p.WarmRoom+u.MaxWarm
	}
}

// connections returns the connections of this process whose peers are those of the stack's fabric.
func (s *stack) connections(counters bool) (all []status.Connection) {
	for _, f := range s.served() {
		f.mu.Lock()
		users := slices.Collect(maps.Keys(f.users))
		f.mu.Unlock()
		for _, u := range users {
			e, ok := u.(*endpoint)
			if !ok {
				continue
			}
			if h, ok := e.pair.Peer().Handler(link.ServiceSDP).(*handler); ok && h.stack == s {
				all = append(all, e.status(counters))
			}
		}
	}
	return all
}

// open returns the Fabrics that are open.
func (s *stack) open() []*Fabric {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.fabrics))
}

func (s *stack) crossovers() []Crossover {
	_, handlers := s.up()
	var all []Crossover
	for _, h := range handlers {
		points, threshold := h.pool.Crossover()
		if h.pool.Peer().Caps().DMAChannels > 0 {
			all = append(all, Crossover{h.pool.Peer().ID().String(), threshold, points})
		}
	}
	return all
}
