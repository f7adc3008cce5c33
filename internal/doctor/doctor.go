package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/census"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/shm/membarrier"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbkernel"
	"github.com/ntbnet/ntbnet/sdp"
)

// timeout limits the listen and the dial.
const timeout = 10 * time.Second

// find returns the spec of the fabric of that name, or of a process that names none if it is empty. from is the name,
// and what says it.
func find(ctx context.Context, name string) (s *spec.Spec, text, from string, err error) {
	by := "--fabric"
	if name == "" {
		if name, by, err = spec.Default(); err != nil {
			return nil, "", "none, by " + spec.File, err
		}
	}
	from = name + ", by " + by
	if by == "" {
		from = name + ", the default"
	}
	if s, err = spec.Parse(name); err == nil {
		s, err = s.Settled(ctx)
	}
	return s, name, from, err
}

// Run examines the fabric of that name, or that of a process that names none if it is empty.
func Run(ctx context.Context, name string) *Report {
	spec, name, from, err := find(ctx, name)
	r := &Report{Fabric: name, Hosts: []*status.Directory{}}
	if err != nil {
		spec = nil
		r.fail("fabric", advice(err), "%s", from)
	} else {
		r.ok("fabric", "%s: %s", from, spec.Whose())
	}
	r.user()
	r.system(spec)
	r.processors()
	r.bridges(ntbkernel.Bridges())
	if spec == nil {
		return r
	}
	if spec.InProcess() {
		r.ok("directory", "none: the fabric is memory of one process")
	} else if r.directory(spec) {
		r.members(ctx, spec)
	} else if where := spec.Elsewhere(timeout); where != "" {
		r.ok("processes", "none could be asked%s", where)
	}
	r.connection(ctx, spec)
	r.Works = !r.failed()
	return r
}

// user checks the user of this process.
func (r *Report) user() {
	u := hostdir.Self()
	var groups []string
	for _, g := range u.Groups {
		groups = append(groups, fmt.Sprintf("%d (%s)", g, hostdir.GroupName(g)))
	}
	if len(groups) == 0 {
		groups = []string{"none"}
	}
	found := fmt.Sprintf("uid %d (%s), gid %d (%s), groups %s", u.UID, hostdir.UserName(u.UID), u.GID, hostdir.GroupName(u.GID), strings.Join(groups, ", "))
	if err := hostdir.CheckUser(); err != nil {
		r.fail("user", advice(err), "%s", found)
		return
	}
	r.ok("user", "%s", found)
}

// directory opens the directory as a process of the fabric does, and reports whether that works.
func (r *Report) directory(spec *spec.Spec) bool {
	place := spec.Place()
	dir, err := hostdir.Open(place, true)
	if err == nil {
		dir.Close()
	}
	found := place.Path()
	switch f, lookErr := place.Look(); {
	case lookErr == nil:
		found = fmt.Sprintf("%s, mode %04o, owner %s, group %s", found, f.Mode, hostdir.UserName(f.UID), hostdir.GroupName(f.GID))
	case errors.Is(lookErr, fs.ErrNotExist):
		found += ", which is not there"
	default:
		found = lookErr.Error()
	}
	if err != nil {
		r.fail("directory", advice(err), "%s", found)
		return false
	}
	r.ok("directory", "%s", found)
	return true
}

// members finds out who is in the fabric.
func (r *Report) members(ctx context.Context, spec *spec.Spec) {
	hosts, err := census.Hosts(ctx, r.Fabric)
	if err != nil {
		r.fail("processes", advice(err), "unknown")
		return
	}
	r.Hosts = hosts
	n, owner := 0, 0
	for _, h := range hosts {
		n += len(h.Processes)
		if h.Error != "" {
			r.warn("processes", oneLine(h.Error), "not all in %s could be asked", h.Directory)
		}
		for _, p := range h.Processes {
			if p.Owner && h.Node == spec.Node {
				owner = p.Process
			}
			if p.Error != "" && h.Error == "" {
				r.warn("processes", oneLine(p.Error)+"; if it is just starting, ask again, else end it", "process %d does not answer", p.Process)
			}
			if p.Messages != 0 && p.Messages != hello.Version {
				other := &hello.VersionError{Peer: uint8(p.Messages)}
				r.warn("processes", other.Error(), "process %d, pid %d, has no connections with programs of this version", p.Process, p.PID)
			}
		}
		if len(h.Dead) > 0 {
			r.warn("processes", "ntbnet ls --remove, or the next process removes them, each those of its own user", "processes that have ended left %d sockets in %s", len(h.Dead), h.Directory)
		}
	}
	r.ok("processes", "%d in the fabric%s", n, spec.Elsewhere(timeout))
	r.links(ctx, spec, owner)
	r.addresses(ctx, spec)
	r.foreign(hosts)
}

// links checks who owns the links of this node, and whether the nodes that run are of the same
// plan.
func (r *Report) links(ctx context.Context, spec *spec.Spec, owner int) {
	owns := spec.Nodes != 0
	switch {
	case spec.Node == 0:
		return
	case owns && owner != 0 && spec.Shares():
		r.ok("links", "process %d owns the links of node %d, and other processes share them", owner, spec.Node)
	case owns && owner != 0:
		// It may be the program that is asked about, with this very SDP_FABRIC.
		r.ok("links", "process %d owns the links of node %d; a second one needs %s", owner, spec.Node, spec.Member())
	case owns:
		r.ok("links", "nobody owns the links of node %d yet", spec.Node)
		r.ends(ctx, spec)
	case owner == 0:
		r.warn("links", "start the process that owns them, with nodes=N", "nobody owns the links of node %d, so that other nodes cannot be reached", spec.Node)
	default:
		r.ok("links", "process %d owns the links of node %d", owner, spec.Node)
	}
	t, err := census.ReadTopology(ctx, r.Fabric)
	if err == nil && owns && (t.Topology != spec.Kind || t.Nodes != spec.Nodes || t.Lanes != spec.Lanes) {
		r.fail("links", fmt.Sprintf("use %s: with nodes=%d and lanes=%d, or end the nodes that run", t.Topology, t.Nodes, t.Lanes),
			"the nodes that run are of a %s of %d nodes, lanes=%d", t.Topology, t.Nodes, t.Lanes)
	}
	if err != nil {
		return // no node runs
	}
	for _, w := range t.Wires {
		if w.Error != "" && (w.From == spec.Node || w.To == spec.Node) {
			r.warn("links", "see the reason; the link is tried again by itself", "no link to node%d: %s", w.From+w.To-spec.Node, oneLine(w.Error))
		}
	}
}

// addresses checks the addresses that option hostI gives to nodes, and says by which transport network "tcp"
// dials those of other nodes.
func (r *Report) addresses(ctx context.Context, s *spec.Spec) {
	const name = "hosts"
	if len(s.Names) == 0 {
		return
	}
	var owner *status.Process // of the links of this node
	if t, err := census.ReadTopology(ctx, r.Fabric); err == nil {
		owner = t.View(s.Node)
	}
	var kernel inetdiag.Kernel
	defer kernel.Close()
	own := s.Names.Addresses(s.Node)
	for node := 1; node <= spec.MaxNodes; node++ {
		for _, a := range s.Names.Addresses(node) {
			route, err := kernel.RouteTo(a)
			up := owner != nil && slices.ContainsFunc(owner.Hosts, func(h status.Host) bool { return h.Host == node && h.State == "up" })
			byTCP := fmt.Sprintf("%v of node%d: network tcp is TCP", a, node)
			switch here := node == s.Node; {
			case err == nil && here != route.Local:
				r.warn(name, fmt.Sprintf("correct host%d, on all nodes", node), "%v of node%d is an address of this machine: %v", a, node, route.Local)
			case here:
			case !slices.ContainsFunc(own, func(o netip.Addr) bool { return o.Is4() == a.Is4() }):
				r.warn(name, fmt.Sprintf("give host%d an address of that family, on all nodes", s.Node), "%s, since this node has no such address", byTCP)
			case owner == nil:
				r.warn(name, "start a process of the fabric that stays, such as sdp-proxy --own", "%s, as long as nobody owns the links of this node", byTCP)
			case !up:
				r.warn(name, "see links above", "%s, since there is no route to the node", byTCP)
			default:
				r.ok(name, "%v of node%d: network tcp goes by SDP to listeners of the fabric", a, node)
			}
		}
	}
}

// ends checks what the wires of this node are made of, for a process that would own them.
func (r *Report) ends(ctx context.Context, spec *spec.Spec) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	bad := spec.CheckEnds(ctx)
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		r.fail("links", "mend it, or name another end: docs/hardware.md, docs/ivshmem.md", "the end %s cannot be used: %s", name, oneLine(bad[name].Error()))
	}
}

// bridges lists the bridges of this machine. Where there are none, or none can be, it says nothing.
func (r *Report) bridges(all []ntbkernel.Bridge, err error) {
	const name = "bridge"
	if err != nil && !errors.Is(err, ntb.ErrNotSupported) {
		r.warn(name, "mount /sys", "%v", err)
	}
	for _, b := range all {
		if b.Err != nil {
			r.warn(name, advice(b.Err), "%s: %s", b.Address, b.About)
		} else {
			r.ok(name, "%s: %s; SDP_FABRIC=ntb:%s uses it", b.Address, b.About, b.Address)
		}
	}
}

// processors checks how many processors there are.
func (r *Report) processors() {
	const name = "processors"
	found := fmt.Sprintf("%d, GOMAXPROCS %d", runtime.NumCPU(), runtime.GOMAXPROCS(0))
	if runtime.NumCPU() < 2 || runtime.GOMAXPROCS(0) < 2 {
		r.warn(name, "give the process two processors or more, if short round trips matter", "%s: no wait for a process of this machine spins, and each message costs a wake-up", found)
		return
	}
	r.ok(name, "%s", found)
}

// barrier checks whether a side that sleeps can make the other one fence.
func (r *Report) barrier() {
	if membarrier.Register() {
		r.ok("membarrier", "works")
		return
	}
	r.warn("membarrier", "use Linux 4.16 or later, and let the filter of system calls (seccomp) allow membarrier", "does not work: each message costs a fence more")
}

// connection listens and dials as a process of the fabric does.
func (r *Report) connection(ctx context.Context, spec *spec.Spec) {
	const name = "connection"
	if r.failed() {
		r.fail(name, "mend what is marked as error above, and ask again", "not tried")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := converse(ctx, spec.Member()); err != nil {
		r.fail(name, advice(err), "a listener on a free port, and a dial to it, failed")
		return
	}
	r.ok(name, "a listener on a free port, a dial to it, and a byte to and fro")
}

// converse listens in a fabric, dials, and sends a byte to and fro.
func converse(ctx context.Context, name string) error {
	f, err := sdp.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	ln, err := f.Listen(sdp.Network, ":0")
	if err != nil {
		return err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if c, err := ln.Accept(); err == nil {
			io.Copy(c, c) // an error shows at the other end
			c.Close()
		}
	}()
	defer func() { ln.Close(); <-served }()
	c, err := f.DialContext(ctx, sdp.Network, ln.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	b := []byte{42}
	if err = c.SetDeadline(deadline); err == nil {
		_, err = c.Write(b)
	}
	if err == nil {
		_, err = io.ReadFull(c, b)
	}
	if err == nil && b[0] != 42 {
		err = fmt.Errorf("sent byte 42, and got %d", b[0])
	}
	return err
}
