package spec

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Spec is a fabric and its options. Its text has the form KIND:NAME?OPTION=VALUE&…
//
// NAME is a name, of a fabric of this user, or the path of a directory, in which users
// meet who may enter it.
//
// The kinds are shm (the processes of one host), mem (one process, for tests), and,
// for several hosts with bridges between them, ring, line and mesh. In a ring each
// node is linked with the two next to it. A line is a ring without the link from the
// last node to the first. In a mesh each node is linked with each other, as behind a
// switch. These kinds need a node's number. The one process that also gives the
// number of nodes owns the node's links. Other processes of the node are its
// members. They reach other nodes through the owner, and have no options of owners.
// The table of options is in options.go.
//
// The text ntb, or ntb:ADDRESS, is a line of two hosts with a bridge of the kernel between them, which needs no
// options. A process finds out by [Spec.Settled], or in Open, which node it is, and whether it owns the links.
type Spec struct {
	Meeting // with the Topology
	Local
	Links  // zero for members, and where there is one host
	bridge // zero for fabrics that no bridge of the kernel joins

	// Wrap is that of sdp.Devices.
	Wrap func(a, b ntb.Device) (ntb.Device, ntb.Device)

	takeover *Spec // of a member where processes share the links: the spec with which it would own the links; nil for others
}

// Local has the options that each process chooses for itself.
type Local struct {
	Strict  bool          // Network "tcp" does not use TCP to addresses in Names.
	Window  int           // 0 is the kind's default.
	Buffer  int           // 0 is the default.
	Spin    time.Duration // -1 is the default.
	DMAFrom int           // 0 measures it.
}

// Links has the options of the owner of a node's links, but for the number of nodes.
type Links struct {
	ring.Options               // the text has Lanes, Slots, FrameBytes, Failover and Puts; LinkOptions adds what follows from the rest
	Share        bool          // the first process of the node owns the links, and others are its members
	Silence      time.Duration // 0 for the default
	Heap         int           // bytes of the ends' memory that each node has for heaps; 0 for none
	Ends
}

// Parse parses a spec. The error wraps EINVAL and says what is wanted. That of a bridge may wrap ENODEV: this
// machine has none.
func Parse(s string) (*Spec, error) {
	rest, query, _ := strings.Cut(s, "?")
	spec, err := parseName(rest)
	if err != nil {
		return nil, err
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("fabric %q: %v: %w", s, err, syscall.EINVAL)
	}
	for _, name := range slices.Sorted(maps.Keys(options)) { // sorted, so that the error is the same each time
		values := options[name]
		if len(values) > 1 {
			return nil, fmt.Errorf("fabric %q: option %s is there twice: %w", s, name, syscall.EINVAL)
		}
		if err := spec.set(name, values[0]); err != nil {
			return nil, fmt.Errorf("fabric %q: option %s=%s: %v: %w", s, name, values[0], err, syscall.EINVAL)
		}
	}
	if err := spec.complete(); err != nil {
		return nil, fmt.Errorf("fabric %q: %v: %w", s, err, syscall.EINVAL)
	}
	return spec, nil
}

// parseName parses the text of a spec without options.
func parseName(s string) (_ *Spec, err error) {
	spec := &Spec{Local: Local{Spin: -1}}
	spec.Kind, spec.Name, _ = strings.Cut(s, ":")
	switch {
	case spec.Kind == "shm", spec.Kind == "mem":
		spec.Backend = spec.Kind
	case IsTopology(spec.Kind):
		spec.Backend = "shm"
	case spec.Kind == BridgeKind:
		if err := spec.nameBridge(spec.Name); err != nil {
			return nil, fmt.Errorf("fabric %q: %w", s, err)
		}
	default:
		return nil, fmt.Errorf("fabric %q: want shm:NAME, mem:NAME, ntb, or ring:NAME?node=I&nodes=N, or line: or mesh: in place of ring: %w", s, syscall.EINVAL)
	}
	if IsPath(spec.Name) && spec.Kind != "mem" {
		spec.Name, err = checkPath(spec.Name)
	} else {
		err = CheckName(spec.Name)
	}
	return spec, err
}

// Numbered returns a copy of the spec, with the numbers of a fabric of one node if there is one host.
func (s *Spec) Numbered() *Spec {
	own := *s
	if !s.Several() {
		own.Node, own.Nodes = 1, 1
	}
	return &own
}

// complete checks that the options of a spec fit each other, and sets what follows from them.
func (s *Spec) complete() error {
	switch {
	case IsPath(s.Name) && s.Backend == "mem":
		return errors.New("backend=mem uses no directory: want a name")
	case !s.Several():
		return nil
	case s.OfBridge() && s.Node == 0:
	case s.Node == 0 && s.Nodes == 0:
		return fmt.Errorf("option node is missing: say which this is, as in node=1&nodes=4, or node=1 if another process owns the links of that node")
	case s.Node == 0:
		return fmt.Errorf("option node is missing: say which this is, node=1 to node=%d", s.Nodes)
	case s.Nodes == 0 && (s.Lanes != 0 || s.Slots != 0 || s.FrameBytes != 0 || s.Failover || s.Share || s.Heap != 0 || s.Puts):
		return fmt.Errorf("share, lanes, slots, frame, failover, heap and puts are for the owner of the links, which says nodes=%d to nodes=%d too", MinNodes, MaxNodes)
	case s.Nodes == 0:
		return s.checkEnds(s.Topology)
	case s.Node > s.Nodes:
		return fmt.Errorf("option node=%d: want 1 to %d, since nodes=%[2]d", s.Node, s.Nodes)
	case s.Share && s.Backend == "mem":
		return errors.New("backend=mem is one process, which shares nothing: want share=0")
	case s.Puts && (s.Nodes != 2 || s.Kind == TopologyRing || s.Failover):
		return errPuts
	}
	for _, name := range slices.Sorted(maps.Keys(s.Names)) {
		if node := s.Names[name]; node > s.Nodes {
			return fmt.Errorf("option host%d=%s: want host1 to host%d, since nodes=%[3]d", node, name, s.Nodes)
		}
	}
	s.Lanes = max(s.Lanes, 1)
	return s.checkEnds(s.Topology)
}
