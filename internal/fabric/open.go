package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

const (
	// linkTimeout limits the time to make a link whose ends are both on this host.
	linkTimeout = 10 * time.Second

	defaultMemWindow = 16 << 20
	defaultShmWindow = 1 << 30 // address space: memory is taken as it is touched
)

// Open joins the fabric that spec names. It calls start before any peer can come
// up. From then on Node and OtherHolder may be called.
func Open(s *spec.Spec, start func(*Fabric)) (*Fabric, error) {
	f, err := openHosts(s)
	if err != nil {
		return nil, spec.Advise(err)
	}
	return f.open(start)
}

// open makes the process part of its fabric. It calls start before any peer can come up.
func (f *Fabric) open(start func(*Fabric)) (_ *Fabric, err error) {
	f.node = link.NewNode(link.MakeID(f.spec.Node, f.number))
	start(f)
	if plan := f.plan.Load(); plan != nil && f.several() { // else the number of nodes is not known yet
		err = f.joinRing(plan.LinkOptions())
	}
	if err == nil {
		f.wg.Go(f.serve)
		err = f.join()
	}
	if err != nil {
		f.Close()
		return nil, spec.Advise(err)
	}
	return f, nil
}

func openHosts(s *spec.Spec) (*Fabric, error) {
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
	f, err := openShmHosts(own)
	if own.Shares() && (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, fs.ErrPermission)) {
		// Another process was faster, or this one may not have the ends of the wires and waits for one that may.
		f, err = openShmHosts(s.AsMember())
	}
	if err != nil && bridge != nil {
		err = errors.Join(err, bridge.Close())
	}
	return f, err
}

func openShmHosts(spec *spec.Spec) (*Fabric, error) {
	spec = spec.Numbered()
	decided, err := spec.Choose()
	if err != nil {
		return nil, err
	}
	s, err := openShmRegistry(spec)
	decided()
	connect := func(ctx context.Context) (cable, error) { return shmConnect(ctx, spec, spec.Node, 0) }
	return newHosts(spec, s, err, connect)
}

func openMemHosts(spec *spec.Spec, hub *MemHosts) (*Fabric, error) {
	spec = spec.Numbered()
	s, err := hub.open(spec.Node, spec.IsOwner())
	connect := func(ctx context.Context) (cable, error) { return hub.connect(ctx, spec.Node, 0) }
	return newHosts(spec, s, err, connect)
}

// newHosts makes the network of a registry. If the registry could not be made because
// of err, connect reaches the process that already has the number, and newHosts
// returns the reason.
func newHosts(own *spec.Spec, s registry, err error, connect func(context.Context) (cable, error)) (*Fabric, error) {
	f := &Fabric{Claims: s, spec: own, registry: s, begun: time.Now(), keeper: newKeeper()}
	if !own.IsMember() {
		f.plan.Store(own)
	}
	if errors.Is(err, syscall.EADDRINUSE) && own.Several() && !own.Shares() {
		// The other process is told, so that it can report that there was a second
		// one.
		who := ""
		if answer, e := f.check(context.Background(), greeting.WantCheck, connect); e == nil {
			who = fmt.Sprintf(" in process %d", answer.PID)
		}
		return nil, fmt.Errorf("%s of fabric %s:%s runs already%s: %w", spec.NodeName(own.Node), own.Kind, own.Name, who, syscall.EADDRINUSE)
	}
	if err != nil {
		return nil, err
	}
	f.number = s.process()
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if own.IsMember() {
		f.links = append(f.links, &linkEnd{kind: toOwner, to: own.Node, since: f.begun, hurry: make(chan struct{}, 1)})
	}
	for w := range own.Wires() {
		f.links = append(f.links, &linkEnd{kind: toNode, wire: w, to: w.Neighbour, first: w.Node < w.Neighbour, since: f.begun, hurry: make(chan struct{}, 1)})
	}
	if err := f.attachWires(); err != nil {
		f.cancel()
		s.close()
		return nil, fmt.Errorf("fabric %s:%s: %w", own.Kind, own.Name, err)
	}
	if own.Puts {
		windowed.Store(windowKey(own), f)
	}
	return f, nil
}

// several reports whether the fabric has several hosts.
func (f *Fabric) several() bool { return f.spec.Several() }

// nodes returns the number of nodes. While a member does not know it, that is the
// largest possible number.
func (f *Fabric) nodes() int {
	if plan := f.plan.Load(); plan != nil {
		return plan.Nodes
	}
	return spec.MaxNodes
}

// joinRing makes the node one of several hosts.
func (f *Fabric) joinRing(o ring.Options) error {
	joined, err := ring.Join(f.node, o)
	if err != nil {
		return err
	}
	f.ring.Store(joined)
	return nil
}

// greeting returns this process' greeting.
func (f *Fabric) greeting(want string) *greeting.Message {
	g := &greeting.Message{
		Version: greeting.Version, Ring: link.Version, Want: want,
		Topology: f.spec.Kind, Node: f.spec.Node, PID: os.Getpid(), Member: f.spec.IsMember(), Process: f.number,
	}
	if plan := f.plan.Load(); plan != nil {
		g.Nodes, g.Lanes, g.Slots, g.Frame = plan.Nodes, plan.Lanes, plan.Slots, plan.FrameBytes
	}
	return g
}

// check asks the process at the other end of a cable whether this one may be in its
// fabric. want is WantCheck, or WantOwner.
func (f *Fabric) check(ctx context.Context, want string, connect func(context.Context) (cable, error)) (*greeting.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, greeting.CheckTimeout)
	defer cancel()
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	answer, release, err := greeting.Ask(ctx, c, f.greeting(want))
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
func (f *Fabric) join() error {
	switch {
	case !f.several():
		return nil
	case f.spec.IsMember():
		return f.joinOwner()
	}
	errs := make([]error, spec.MaxNodes+1)
	var wg sync.WaitGroup
	for node := 1; node <= spec.MaxNodes; node++ {
		if node == f.spec.Node {
			continue
		}
		if ok, err := f.registry.present(node); err != nil || !ok {
			continue // a node that comes later asks us
		}
		wg.Go(func() {
			answer, err := f.check(f.ctx, greeting.WantCheck, func(ctx context.Context) (cable, error) { return f.registry.connect(ctx, node, 0) })
			if err == nil {
				errs[node] = f.greeting("").Verdict(answer)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("fabric %s:%s: %w", f.spec.Kind, f.spec.Name, err)
		}
	}
	for _, l := range f.links {
		f.wg.Go(func() { f.keep(l) })
	}
	f.wg.Go(f.callMembers)
	return nil
}

// bridge makes the bridge of a link of a cable to a process of a user.
func (f *Fabric) bridge(c cable, who Peer, kind kind) (ntb.Device, error) {
	window, doorbells := f.spec.Window, 1
	if window == 0 {
		window = defaultShmWindow
		if f.spec.Backend == "mem" {
			window = defaultMemWindow
		}
	}
	if kind != toProcess {
		plan := f.plan.Load()
		window, doorbells = plan.LinkOptions().LinkWindow(window), plan.Lanes+1
	}
	dev, err := c.bridge(window, doorbells)
	if err != nil {
		return nil, err
	}
	if f.spec.Kind != "mem" { // there both ends were wrapped together
		dev, _ = wrap(f.spec, dev, nil)
	}
	user := &who
	if kind == toNode { // who dials or listens there is not known
		user = nil
	}
	return identify(dev, user, who.UID != os.Geteuid()), nil
}

// wrap wraps the ends of a bridge as the spec says.
func wrap(s *spec.Spec, a, b ntb.Device) (ntb.Device, ntb.Device) {
	if s.Wrap == nil {
		return a, b
	}
	return s.Wrap(a, b)
}
