package spec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbivshmem"
	"github.com/ntbnet/ntbnet/ntb/ntbkernel"
)

// end is a node's end of a wire, as an option names it.
type end struct {
	kind   string // ivshmem, file or ntb
	target string // the path of a server's socket or of a file, or the address of a PCI function; "" for the only bridge
	polls  bool   // without interrupts, by the function's files
	places int    // of the memory; 2 unless its server says more
}

// endWant says what ends there are. With poll a function is used without VFIO. peers is that of the
// memory's server, or how many ends a file has.
const endWant = "ntb or ntb:ADDRESS of a bridge, ivshmem:ADDRESS of a PCI function, ivshmem:/PATH of a socket or file:/PATH, perhaps with ,poll or ,peers=N"

// parseEnd parses the value of an option that names an end.
func parseEnd(value string) (end, bool) {
	kind, rest, _ := strings.Cut(value, ":")
	e := end{kind: kind, places: 2}
	ok := kind == "file" || kind == "ivshmem"
	words := strings.Split(rest, ",")
	e.target = words[0]
	if kind == BridgeKind {
		return e, len(words) == 1 && (value == BridgeKind || ntbivshmem.IsAddress(e.target))
	}
	for _, word := range words[1:] {
		if n, isPeers := strings.CutPrefix(word, "peers="); isPeers {
			ok = ok && number(&e.places, n, 2, ntbivshmem.MaxPlaces)
		} else {
			e.polls = true
			ok = ok && word == "poll"
		}
	}
	if IsPath(e.target) {
		return e, ok && !e.polls
	}
	return e, ok && kind != "file" && ntbivshmem.IsAddress(e.target)
}

// place returns which part of the memory the ends of a wire use, with the options of a spec. Of two places, the first is
// that of the node whose neighbour is on its right, or in a mesh the node with the lower number. Of
// more, each node has the place of its number.
func (e *end) place(w Wire, s *Spec) ntbivshmem.Place {
	p := ntbivshmem.Place{Places: e.places, Silence: s.Silence}
	switch {
	case e.places > 2:
		p.Own, p.Peer = w.Node-1, w.Neighbour-1
	case w.Side == Right || w.Side == Direct && w.Node < w.Neighbour:
		p.Peer = 1
	default:
		p.Own = 1
	}
	if s.Heap != 0 && !s.Puts {
		p.Heap, p.Least = s.Heap, s.leastWindow()
	}
	return p
}

// attach attaches the end, with the options of a spec.
func (e *end) attach(w Wire, s *Spec) (ntb.Attachment, error) {
	place := e.place(w, s)
	switch {
	case e.kind == BridgeKind:
		address, err := e.bridge()
		if err != nil {
			return nil, err
		}
		return s.attachBridge(address)
	case e.kind == "file":
		return ntbivshmem.AttachFile(e.target, place)
	case IsPath(e.target):
		return ntbivshmem.AttachSocket(e.target, place)
	case e.polls:
		return ntbivshmem.AttachResources(e.target, place)
	default:
		return ntbivshmem.AttachFunction(e.target, place)
	}
}

// Ends says what this node's ends of wires are.
type Ends struct {
	// Attach, if not nil, returns this node's end of a wire that is not made of Unix
	// sockets, or nil for one that is. The fabric owns it.
	Attach func(Wire) (ntb.Attachment, error)

	ends map[string]end // what wires are made of, by the option that says so
}

// setEnd sets what a wire is made of. which is a side, or in a mesh the neighbour's name.
func (a *Ends) setEnd(which, value string) bool {
	e, ok := parseEnd(value)
	if a.ends == nil {
		a.ends = make(map[string]end)
	}
	a.ends[which] = e
	return ok
}

// endName returns the name of the option for a wire.
func endName(w Wire) string {
	if w.Side == Direct {
		return NodeName(w.Neighbour)
	}
	return string(w.Side)
}

// checkEnds checks that each end that was named is one of the topology's node.
func (l *Links) checkEnds(t Topology) error {
	if len(l.ends) == 0 && l.Heap == 0 {
		return nil
	}
	if t.Nodes == 0 {
		return errors.New("ends of wires are for the owner of the links, which says nodes=N too")
	}
	var names []string
	for w := range t.Wires() {
		names = append(names, endName(w))
	}
	for _, name := range slices.Sorted(maps.Keys(l.ends)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("option %s: node %d has wires %s", name, t.Node, strings.Join(names, ", "))
		}
		if e := l.ends[name]; e.places > 2 && e.places < t.Nodes {
			return fmt.Errorf("option %s: the memory has %d places, want one for each of %d nodes", name, e.places, t.Nodes)
		}
	}
	if l.Heap != 0 && !l.Puts {
		return l.checkHeaps(t.Nodes, len(names))
	}
	return nil
}

// AttachWire returns this node's end of a wire, or nil if it is made of Unix sockets.
func (s *Spec) AttachWire(w Wire) (ntb.Attachment, error) {
	if s.Attach != nil {
		if a, err := s.Attach(w); a != nil || err != nil {
			return a, err
		}
	}
	e, ok := s.ends[endName(w)]
	if !ok {
		return nil, nil
	}
	return e.attach(w, s)
}

// CheckEnds returns, by the name of its option, why each end that the spec names would not be attached as it
// is now. It owns none of them.
func (s *Spec) CheckEnds(ctx context.Context) map[string]error {
	bad := make(map[string]error)
	for w := range s.Wires() {
		if e, ok := s.ends[endName(w)]; ok {
			window, err := e.check(ctx, w, s)
			if err == nil && s.Puts && window != 0 {
				var heap int
				heap, err = s.HeapBytes(window)
				window -= heap
			}
			if err == nil && window != 0 {
				err = s.LinkOptions().CheckWindow(window)
			}
			if err != nil {
				bad[endName(w)] = err
			}
		}
	}
	return bad
}

// bridge returns the address of the end's bridge.
func (e *end) bridge() (string, error) {
	if e.target == "" {
		return ntbkernel.Find()
	}
	return e.target, nil
}

// check returns why the end would not be attached, or how large its windows are, 0 if that is unknown.
func (e *end) check(ctx context.Context, w Wire, s *Spec) (window int, err error) {
	switch place := e.place(w, s); {
	case e.kind == BridgeKind:
		address, err := e.bridge()
		if err != nil {
			return 0, err
		}
		return ntbkernel.Check(address, ntbkernel.Options{Window: s.Window})
	case e.kind == "file":
		return ntbivshmem.CheckFile(e.target, place)
	case IsPath(e.target):
		return ntbivshmem.CheckSocket(ctx, e.target, place)
	default:
		return 0, ntbivshmem.CheckFunction(e.target)
	}
}

// AttachEnd attaches an end of a wire by itself, without a fabric. name is an end, as an option names it, or a fabric of
// whose wires one has an end. node is 1 at the one host and 2 at the other one, and 0 if the kernel or the fabric
// knows. found is the name of the end, with the address of its bridge.
func AttachEnd(name string, node int) (a ntb.Attachment, found string, err error) {
	e, ok := parseEnd(name)
	w, spec := Wire{Node: node, Neighbour: 3 - node, Side: Direct}, &Spec{}
	if !ok {
		if spec, err = Parse(name); err != nil {
			return nil, "", fmt.Errorf("want %s, or a fabric with one of them: %w", endWant, err)
		}
		if e, w, err = spec.onlyEnd(); err != nil {
			return nil, "", fmt.Errorf("fabric %q: %w: %w", name, err, syscall.EINVAL)
		}
	}
	if e.kind == BridgeKind {
		e.target, err = e.bridge()
	} else if ok && node != 1 && node != 2 {
		err = fmt.Errorf("which end of %s this is only you know: say node 1 at the one host, and node 2 at the other: %w", name, syscall.EINVAL)
	}
	if err == nil {
		a, err = e.attach(w, spec)
	}
	return a, e.kind + ":" + e.target, err
}

// onlyEnd returns the end that the spec names, if that is one.
func (s *Spec) onlyEnd() (e end, w Wire, err error) {
	if s.OfBridge() {
		return end{kind: BridgeKind, target: s.address}, Wire{}, nil
	}
	if len(s.ends) != 1 {
		return end{}, Wire{}, fmt.Errorf("it names %d ends of wires: name the one to be used", len(s.ends))
	}
	for w := range s.Wires() {
		if e, ok := s.ends[endName(w)]; ok {
			return e, w, nil
		}
	}
	return end{}, Wire{}, errors.New("it has no such wire")
}

// CommonMemory returns the memory of which all ends of the spec are, of option heap: the path of a file, or of a server's
// socket. The heaps of nodes are behind what place leaves to links. ok is false without that option, or if that says how
// much of windows is for heaps.
func (s *Spec) CommonMemory() (path string, server bool, place ntbivshmem.Place, ok bool) {
	for w := range s.Wires() { // all have the same end
		e := s.ends[endName(w)]
		path, server, place = e.target, e.kind != "file", e.place(w, s)
	}
	return path, server, place, place.Heap != 0
}
