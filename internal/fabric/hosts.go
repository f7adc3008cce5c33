package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

const (
	// linkTimeout limits the time to make a link whose ends are both on this host.
	linkTimeout = 10 * time.Second

	defaultMemWindow = 16 << 20
	defaultShmWindow = 1 << 30 // address space: memory is taken as it is touched
)

// hosts is the network of a fabric: the processes and ports of this host, and this
// host's links to the other hosts. A fabric of one host has one node and no links.
type hosts struct {
	spec     *spec.Spec                // immutable; of one host, Node and Nodes are 1
	registry registry                  // immutable
	number   int                       // number of this process on its host; immutable
	node     *link.Node                // set before serve
	ring     atomic.Pointer[ring.Node] // the node in a fabric of several hosts, once the number of these is known
	ctx      context.Context           // close ends it
	cancel   context.CancelFunc
	wg       sync.WaitGroup // all goroutines
	begun    time.Time      // immutable
	// plan is the fabric as the owner of this host's links defines it. For the
	// owner it is its own spec. For a member it is the member's spec, completed
	// once it has met the owner. After that it does not change.
	plan    atomic.Pointer[spec.Spec]
	refused refusals
	foreign foreignLinks
	inherit func(*spec.Spec) (leave func(), err error) // Inherit's; set before serve
	leave   func()                                     // what inherit returned; of succeed, and of close behind it
	// connections are those of this process; nil if nobody knows; set before serve.
	connections func(counters bool) []status.Connection
	describe    func(*status.Process) // adds what else their package says; likewise

	keeper
}

func openHosts(s *spec.Spec) (*hosts, error) {
	switch {
	case s.Attach != nil && s.OfBridge():
		return nil, fmt.Errorf("fabric %s:%s: %s names the bridge: to attach others, want line: with node=I and nodes=2: %w",
			s.Kind, s.Name, spec.BridgeKind, syscall.EINVAL)
	case s.Attach != nil && !s.IsOwner():
		return nil, fmt.Errorf("fabric %s:%s: this process owns no links to neighbours, to which bridges could be attached: "+
			"want ring:, line: or mesh: with node=I and nodes=N: %w", s.Kind, s.Name, syscall.EINVAL)
	case s.Kind == "mem": // of this process alone, whatever others are called
		return openMemHosts(s, NewMemHosts(func(_, _ int, a, b ntb.Device) (ntb.Device, ntb.Device) { return wrap(s, a, b) }))
	case s.Backend == "mem":
		return openMemHosts(s, namedHub(s.Kind+":"+s.Name))
	}
	own, bridge, err := s.Take()
	if err != nil {
		return nil, err
	}
	h, err := openShmHosts(own)
	if own.Shares() && (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, fs.ErrPermission)) {
		// Another process was faster, or this one may not have the ends of the wires and waits for one that may.
		h, err = openShmHosts(s.AsMember())
	}
	if err != nil && bridge != nil {
		err = errors.Join(err, bridge.Close())
	}
	return h, err
}

func openShmHosts(spec *spec.Spec) (*hosts, error) {
	spec, decided, err := spec.Numbered().Choose()
	if err != nil {
		return nil, err
	}
	s, err := openShmRegistry(spec)
	decided()
	connect := func(ctx context.Context) (cable, error) { return shmConnect(ctx, spec, spec.Node, 0) }
	return newHosts(spec, s, err, connect)
}

func openMemHosts(spec *spec.Spec, hub *MemHosts) (*hosts, error) {
	spec = spec.Numbered()
	s, err := hub.open(spec.Node, spec.IsOwner())
	connect := func(ctx context.Context) (cable, error) { return hub.connect(ctx, spec.Node, 0) }
	return newHosts(spec, s, err, connect)
}

// newHosts makes the network of a registry. If the registry could not be made because
// of err, connect reaches the process that already has the number, and newHosts
// returns the reason.
func newHosts(own *spec.Spec, s registry, err error, connect func(context.Context) (cable, error)) (*hosts, error) {
	h := &hosts{spec: own, registry: s, begun: time.Now(), keeper: newKeeper()}
	if !own.IsMember() {
		h.plan.Store(own)
	}
	if errors.Is(err, syscall.EADDRINUSE) && own.Several() && !own.Shares() {
		// The other process is told, so that it can report that there was a second
		// one.
		who := ""
		if answer, e := h.check(context.Background(), greeting.WantCheck, connect); e == nil {
			who = fmt.Sprintf(" in process %d", answer.PID)
		}
		return nil, fmt.Errorf("%s of fabric %s:%s runs already%s: %w", spec.NodeName(own.Node), own.Kind, own.Name, who, syscall.EADDRINUSE)
	}
	if err != nil {
		return nil, err
	}
	h.number = s.process()
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if own.IsMember() {
		h.links = append(h.links, &linkEnd{kind: toOwner, to: own.Node, since: h.begun, hurry: make(chan struct{}, 1)})
	}
	for w := range own.Wires() {
		h.links = append(h.links, &linkEnd{kind: toNode, wire: w, to: w.Neighbour, first: w.Node < w.Neighbour, since: h.begun, hurry: make(chan struct{}, 1)})
	}
	if err := h.attachWires(); err != nil {
		h.cancel()
		s.close()
		return nil, fmt.Errorf("fabric %s:%s: %w", own.Kind, own.Name, err)
	}
	if own.Puts {
		windowed.Store(keyOf(own), h)
	}
	return h, nil
}

// several reports whether the fabric has several hosts.
func (h *hosts) several() bool { return h.spec.Several() }

// nodes returns the number of nodes. While a member does not know it, that is the
// largest possible number.
func (h *hosts) nodes() int {
	if plan := h.plan.Load(); plan != nil {
		return plan.Nodes
	}
	return spec.MaxNodes
}

// attach makes the node part of the fabric, once the number of nodes is known.
func (h *hosts) attach(node *link.Node) error {
	h.node = node
	if plan := h.plan.Load(); plan != nil && h.several() {
		return h.joinRing(plan.LinkOptions())
	}
	return nil
}

// joinRing makes the node one of several hosts.
func (h *hosts) joinRing(o ring.Options) error {
	joined, err := ring.Join(h.node, o)
	if err != nil {
		return err
	}
	h.ring.Store(joined)
	return nil
}

// closeNode takes all links of the node down. Then nothing uses the wires any more. Until then
// what the node has sent is on its way over them.
func (h *hosts) closeNode() {
	if r := h.ring.Load(); r != nil {
		r.Close()
	} else {
		h.node.Close()
	}
	h.detachWires()
}

// greeting returns this process' greeting.
func (h *hosts) greeting(want string) *greeting.Message {
	g := &greeting.Message{
		Version: greeting.Version, Ring: link.Version, Want: want,
		Topology: h.spec.Kind, Node: h.spec.Node, PID: os.Getpid(), Member: h.spec.IsMember(), Process: h.number,
	}
	if plan := h.plan.Load(); plan != nil {
		g.Nodes, g.Lanes, g.Slots, g.Frame = plan.Nodes, plan.Lanes, plan.Slots, plan.Frame
	}
	return g
}

// check asks the process at the other end of a cable whether this one may be in its
// fabric. want is WantCheck, or WantOwner.
func (h *hosts) check(ctx context.Context, want string, connect func(context.Context) (cable, error)) (*greeting.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, greeting.CheckTimeout)
	defer cancel()
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	answer, release, err := greeting.Ask(ctx, c, h.greeting(want))
	if err != nil {
		return nil, err
	}
	release()
	c.Close()
	return answer, nil
}

// join compares this process with the nodes that run, and then makes the links. It
// is called after serve. So of two nodes that begin together, at least one finds
// the other.
func (h *hosts) join() error {
	switch {
	case !h.several():
		return nil
	case h.spec.IsMember():
		return h.joinOwner()
	}
	errs := make([]error, spec.MaxNodes+1)
	var wg sync.WaitGroup
	for node := 1; node <= spec.MaxNodes; node++ {
		if node == h.spec.Node {
			continue
		}
		if ok, err := h.registry.present(node); err != nil || !ok {
			continue // a node that comes later asks us
		}
		wg.Go(func() {
			answer, err := h.check(h.ctx, greeting.WantCheck, func(ctx context.Context) (cable, error) { return h.registry.connect(ctx, node, 0) })
			if err == nil {
				errs[node] = h.greeting("").Verdict(answer)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("fabric %s:%s: %w", h.spec.Kind, h.spec.Name, err)
		}
	}
	for _, l := range h.links {
		h.wg.Go(func() { h.keep(l) })
	}
	h.wg.Go(h.callMembers)
	return nil
}

// bridge makes the bridge of a link of a cable to a process of a user.
func (h *hosts) bridge(c cable, who Peer, kind kind) (ntb.Device, error) {
	window, doorbells := h.spec.Window, 1
	if window == 0 {
		window = defaultShmWindow
		if h.spec.Backend == "mem" {
			window = defaultMemWindow
		}
	}
	if kind != toProcess {
		plan := h.plan.Load()
		window, doorbells = plan.LinkOptions().LinkWindow(window), plan.Lanes+1
	}
	dev, err := c.bridge(window, doorbells)
	if err != nil {
		return nil, err
	}
	if h.spec.Kind != "mem" { // there both ends were wrapped together
		dev, _ = wrap(h.spec, dev, nil)
	}
	if kind == toNode {
		return ofUser(dev, who).ofHost(), nil
	}
	return ofUser(dev, who), nil
}

// close drops all claims and ends the goroutines. The links end with the node, in closeNode.
func (h *hosts) close() {
	windowed.CompareAndDelete(keyOf(h.spec), h)
	h.cancel()
	h.registry.stop()
	h.wg.Wait()
	h.registry.close()
}

// wrap wraps the ends of a bridge as the spec says.
func wrap(s *spec.Spec, a, b ntb.Device) (ntb.Device, ntb.Device) {
	if s.Wrap == nil {
		return a, b
	}
	return s.Wrap(a, b)
}
