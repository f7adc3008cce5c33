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

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
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
	spec     *Spec                     // immutable; of one host, Node and Nodes are 1
	registry registry                  // immutable
	number   int                       // number of this process on its host; immutable
	node     *link.Node                // set before serve
	ring     atomic.Pointer[ring.Node] // the node in a fabric of several hosts, once the number of these is known
	accepted func(ntb.Device)          // likewise
	ctx      context.Context           // close ends it
	cancel   context.CancelFunc
	wg       sync.WaitGroup // all goroutines
	begun    time.Time      // immutable
	// direct is directWithin. A test may change it before the first dial.
	direct time.Duration
	// plan is the fabric as the owner of this host's links defines it. For the
	// owner it is its own spec. For a member it is the member's spec, completed
	// once it has met the owner. After that it does not change.
	plan    atomic.Pointer[Spec]
	refused refusals
	foreign foreignLinks
	inherit func(*Spec) (leave func(), err error) // Inherit's; set before serve
	leave   func()                                // what inherit returned; of succeed, and of close behind it
	heaped  atomic.Bool                           // a HeapWindow of more than two nodes is open
	// connections are those of this process; nil if nobody knows; set before serve.
	connections func(counters bool) []status.Connection
	describe    func(*status.Process) // adds what else their package says; likewise

	mu      lock.Mutex[lock.Hosts]
	links   []*nodeLink   // the slice is immutable; the links are guarded by mu
	changed chan struct{} // closed and replaced at every change of a link; guarded by mu
	// members are the members of this host whose links are up, by process; guarded
	// by mu.
	members map[int]*memberLink
}

func openHosts(spec *Spec) (*hosts, error) {
	switch {
	case spec.Attach != nil && spec.bridge != "":
		return nil, fmt.Errorf("fabric %s:%s: %s names the bridge: to attach others, want line: with node=I and nodes=2: %w",
			spec.Kind, spec.Name, bridgeKind, syscall.EINVAL)
	case spec.Attach != nil && !spec.owner():
		return nil, fmt.Errorf("fabric %s:%s: this process owns no links to neighbours, to which bridges could be attached: "+
			"want ring:, line: or mesh: with node=I and nodes=N: %w", spec.Kind, spec.Name, syscall.EINVAL)
	case spec.Kind == "mem": // of this process alone, whatever others are called
		return openMemHosts(spec, NewMemHosts(func(_, _ int, a, b ntb.Device) (ntb.Device, ntb.Device) { return spec.wrap(a, b) }))
	case spec.Backend == "mem":
		return openMemHosts(spec, namedHub(spec.Kind+":"+spec.Name))
	}
	own, bridge, err := spec.take()
	if err != nil {
		return nil, err
	}
	h, err := openShmHosts(own)
	if own.Shares() && (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, fs.ErrPermission)) {
		// Another process was faster, or this one may not have the ends of the wires and waits for one that may.
		h, err = openShmHosts(spec.asMember())
	}
	if err != nil && bridge != nil {
		err = errors.Join(err, bridge.Close())
	}
	return h, err
}

func openShmHosts(spec *Spec) (*hosts, error) {
	spec, decided, err := spec.numbered().choose()
	if err != nil {
		return nil, err
	}
	s, err := openShmRegistry(spec)
	decided()
	connect := func(ctx context.Context) (cable, error) { return shmConnect(ctx, spec, spec.Node, 0) }
	return newHosts(spec, s, err, connect)
}

func openMemHosts(spec *Spec, hub *MemHosts) (*hosts, error) {
	spec = spec.numbered()
	s, err := hub.open(spec.Node, spec.owner())
	connect := func(ctx context.Context) (cable, error) { return hub.connect(ctx, spec.Node, 0) }
	return newHosts(spec, s, err, connect)
}

// newHosts makes the network of a registry. If the registry could not be made because
// of err, connect reaches the process that already has the number, and newHosts
// returns the reason.
func newHosts(spec *Spec, s registry, err error, connect func(context.Context) (cable, error)) (*hosts, error) {
	h := &hosts{spec: spec, registry: s, begun: time.Now(), direct: directWithin, changed: make(chan struct{}), members: map[int]*memberLink{}}
	if !spec.member() {
		h.plan.Store(spec)
	}
	if errors.Is(err, syscall.EADDRINUSE) && spec.hosts() && !spec.Shares() {
		// The other process is told, so that it can report that there was a second
		// one.
		who := ""
		if answer, e := h.check(connect); e == nil {
			who = fmt.Sprintf(" in process %d", answer.PID)
		}
		return nil, fmt.Errorf("%s of fabric %s:%s runs already%s: %w", nodeName(spec.Node), spec.Kind, spec.Name, who, syscall.EADDRINUSE)
	}
	if err != nil {
		return nil, err
	}
	h.number = s.process()
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if spec.member() {
		h.links = append(h.links, &nodeLink{to: spec.Node, since: h.begun})
	}
	for w := range wires(spec.Kind, spec.Nodes) {
		if to := w.other(spec.Node); to != 0 {
			h.links = append(h.links, &nodeLink{wire: w, to: to, since: h.begun})
		}
	}
	if err := h.attachWires(); err != nil {
		h.cancel()
		s.close()
		return nil, fmt.Errorf("fabric %s:%s: %w", spec.Kind, spec.Name, err)
	}
	if spec.Puts {
		windowed.Store(spec.windowKey(), h)
	}
	return h, nil
}

// several reports whether the fabric has several hosts.
func (h *hosts) several() bool { return h.spec.hosts() }

// nodes returns the number of nodes. While a member does not know it, that is the
// largest possible number.
func (h *hosts) nodes() int {
	if plan := h.plan.Load(); plan != nil {
		return plan.Nodes
	}
	return maxNodes
}

// attach makes the node part of the fabric, once the number of nodes is known.
func (h *hosts) attach(node *link.Node) error {
	h.node = node
	if plan := h.plan.Load(); plan != nil && h.several() {
		return h.joinRing(plan.options())
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

// options returns the options for the links' layer.
func (s *Spec) options() ring.Options {
	return ring.Options{
		Topology: map[string]ring.Topology{topologyRing: ring.Ring, topologyLine: ring.Line, topologyMesh: ring.Mesh}[s.Kind],
		Hosts:    s.Nodes, Lanes: s.Lanes, Slots: s.Slots, FrameBytes: s.Frame, Failover: s.Failover,
		Window:    min(s.Window, maxTunnel), // 0 is the default of each
		Retention: s.Retention, NoSpin: s.Spin == 0, Puts: s.Puts,
	}
}

// maxTunnel is the largest window of a node that is not a neighbour, in bytes.
const maxTunnel = 1 << 30

// greeting returns this process' greeting.
func (h *hosts) greeting(want string) *greeting {
	g := &greeting{
		Version: greetingVersion, Ring: link.Version, Want: want,
		Topology: h.spec.Kind, Node: h.spec.Node, PID: os.Getpid(), Member: h.spec.member(), Process: h.number,
	}
	if plan := h.plan.Load(); plan != nil {
		g.Nodes, g.Lanes, g.Slots, g.Frame = plan.Nodes, plan.Lanes, plan.Slots, plan.Frame
	}
	return g
}

// ask sends a greeting over a cable and reads the answer. The cable is closed on
// error. It is also closed when ctx ends, unless release was called before.
func ask(ctx context.Context, c cable, g *greeting) (answer *greeting, release func() bool, err error) {
	release = context.AfterFunc(ctx, func() { c.Close() })
	if deadline, ok := ctx.Deadline(); ok {
		err = c.SetDeadline(deadline)
	}
	if err == nil && g.bridges() {
		err = c.takeFiles() // they come right behind the answer
	}
	if err == nil {
		err = writeGreeting(c, g)
	}
	if err == nil || errors.Is(err, syscall.EPIPE) { // one that has hung up may have said why before
		g, e := readGreeting(c, maxAnswer)
		if e == nil || err == nil {
			answer, err = g, e
		}
	}
	if err != nil {
		release()
		c.Close()
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded): // that of ctx, a moment earlier
			err = context.DeadlineExceeded
		case errors.Is(err, syscall.EPIPE):
			err = fmt.Errorf("%w: %v", syscall.ECONNRESET, err) // as if it had ended a moment later
		}
		return nil, nil, fmt.Errorf("fabric: greet a node: %w", err)
	}
	return answer, release, nil
}

// checkTimeout is how long a node that begins waits for another one's answer. A
// node that is stopped does not answer. If it does not fit, that is found when a
// link is made.
const checkTimeout = time.Second

// check asks the process at the other end of a cable whether this one may be in its
// fabric.
func (h *hosts) check(connect func(context.Context) (cable, error)) (*greeting, error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	mine := h.greeting(wantCheck)
	answer, release, err := ask(ctx, c, mine)
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
	case h.spec.member():
		return h.joinOwner()
	}
	errs := make([]error, maxNodes+1)
	var wg sync.WaitGroup
	for node := 1; node <= maxNodes; node++ {
		if node == h.spec.Node {
			continue
		}
		if ok, err := h.registry.present(node); err != nil || !ok {
			continue // a node that comes later asks us
		}
		wg.Go(func() {
			answer, err := h.check(func(ctx context.Context) (cable, error) { return h.registry.connect(ctx, node, 0) })
			if err == nil {
				errs[node] = h.greeting("").verdict(answer)
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

// verdict returns what a process concludes from an answer. Its own comparison comes
// first, since its message fits both sides.
func (g *greeting) verdict(answer *greeting) error {
	if err := g.fits(answer); err != nil {
		return err
	}
	if answer.Full {
		return fmt.Errorf("node %d refuses: %.200s: %w", answer.Node, answer.Refused, syscall.EAGAIN)
	}
	if answer.Refused != "" {
		return fmt.Errorf("%w: node %d refuses: %.200q", ErrMismatch, answer.Node, answer.Refused)
	}
	return nil
}

// connect makes a bridge to another process of this host, which must be of one of the users, if
// these are not nil.
func (h *hosts) connect(ctx context.Context, process int, users []int) (ntb.Device, error) {
	c, err := h.registry.connectTo(ctx, process, users)
	if err != nil {
		return nil, err
	}
	who, err := c.peer()
	if err != nil {
		c.Close()
		return nil, err
	}
	mine := h.greeting(wantProcess)
	answer, release, err := ask(ctx, c, mine)
	if err != nil {
		return nil, err
	}
	if err := mine.verdict(answer); err != nil {
		release()
		c.Close()
		return nil, err
	}
	dev, err := h.bridge(c, who, wantProcess)
	if !release() && err == nil {
		dev.Close()
		err = ctx.Err()
	}
	return dev, err
}

// bridge makes a bridge of a cable to a process of a user, for a link or within the host.
func (h *hosts) bridge(c cable, who Peer, want string) (ntb.Device, error) {
	window, doorbells := h.spec.Window, 1
	if window == 0 {
		window = defaultShmWindow
		if h.spec.Backend == "mem" {
			window = defaultMemWindow
		}
	}
	if want == wantLink || want == wantUplink {
		plan := h.plan.Load()
		window, doorbells = plan.options().LinkWindow(window), plan.Lanes+1
	}
	dev, err := c.bridge(window, doorbells)
	if err != nil {
		return nil, err
	}
	if h.spec.Kind != "mem" { // there both ends were wrapped together
		dev, _ = h.spec.wrap(dev, nil)
	}
	if want == wantLink {
		return ofUser(dev, who).ofHost(), nil
	}
	return ofUser(dev, who), nil
}

// close drops all claims and ends the goroutines. The links end with the node, in closeNode.
func (h *hosts) close() {
	windowed.CompareAndDelete(h.spec.windowKey(), h)
	h.cancel()
	h.registry.stop()
	h.wg.Wait()
	h.registry.close()
}
