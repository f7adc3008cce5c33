package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// whose says for which specs an option is.
type whose int

const (
	everyones whose = iota
	paths           // fabrics that are a directory given by its path
	nodes           // fabrics of several hosts
	owners          // such fabrics, if the process owns the links, which it does if it gives the number of nodes
)

// option is a row of the table of options. It is everything that is defined about an
// option: Parse uses it, and the documents contain its words.
type option struct {
	name  string
	value string // what stands for the value in the documents
	what  string
	want  string // the range
	unset string // the default; "" if the option must be given
	of    whose
	// set sets the option. It returns false if the value is out of range.
	set func(s *Spec, value string) bool
}

// options are all options, in the order of the documents.
var options = []option{
	{"window", "BYTES", "the size of this side's window on each link, or the most that is used of a bridge's (ntb); memory is taken only as it is used",
		"a multiple of 4096 from 131072 to 68719476736", "1 GiB (16 MiB of mem:, 64 MiB of a bridge)", everyones,
		func(s *Spec, v string) bool { return number(&s.Window, v, 128<<10, 64<<30) && s.Window%4096 == 0 }},
	{"buffer", "BYTES", "how large a connection's queue may grow, per direction",
		"a power of two from 4096 to 16777216", "8 MiB", everyones,
		func(s *Spec, v string) bool { return number(&s.Buffer, v, 4<<10, 16<<20) && s.Buffer&(s.Buffer-1) == 0 }},
	{"spin", "TIME", "how long a wait polls before it sleeps, a dial and Accept 4 times as long, less where processors are scarce",
		"a time from 0 to 1ms, with its unit, as in 20us", "50us", everyones,
		func(s *Spec, v string) bool { return duration(&s.Spin, v, 0, time.Millisecond) }},
	{"dmafrom", "BYTES", "the size from which on payload goes through a DMA engine, where a link has one; 0 to measure it when the link comes up",
		"a number from 0 to 1073741824", "0", everyones,
		func(s *Spec, v string) bool { return number(&s.DMAFrom, v, 0, 1<<30) }},
	{"group", "NAME", "the group, by name or number, that the directory must have; it is made, with mode 3770, if it is not there",
		"a group", "any group that this user is in, and no directory is made", paths,
		func(s *Spec, v string) bool { s.Group = v; return isID(v) }},
	{"owner", "NAMES", "users, by name or number, with commas between, who may own the directory besides root and this user; who owns it is trusted",
		"users", "none", paths,
		func(s *Spec, v string) bool {
			s.Owners = strings.Split(v, ",")
			return !slices.ContainsFunc(s.Owners, func(o string) bool { return !isID(o) })
		}},
	{"node", "I", "which node this process is of", "a number from 1 to 16", "", nodes,
		func(s *Spec, v string) bool { return number(&s.Node, v, 1, MaxNodes) }},
	{hostOption, "NAMES", "names by which network sdp dials node I, and addresses by which networks sdp and tcp do, with commas between; node I keeps its own",
		"names or IP addresses of machines, each of one node", "none", nodes, nil},
	{"fallback", "0", "a dial of network tcp to an address of hostI fails where it cannot go by SDP; with 1 it goes by TCP then",
		"0 or 1", "1", nodes,
		func(s *Spec, v string) bool { s.Strict = v == "0"; return v == "0" || v == "1" }},
	{"backend", "NAME", "what the links are made of: memory between processes or, for tests, within one",
		"shm or mem", "shm", nodes,
		func(s *Spec, v string) bool { s.Backend = v; return v == "shm" || v == "mem" }},
	{"nodes", "N", "how many nodes there are, the same on all; the process that says so owns the links of its node",
		"a number from 2 to 16", "", owners,
		func(s *Spec, v string) bool { return number(&s.Nodes, v, MinNodes, MaxNodes) }},
	{"share", "1", "others of the node may say nodes too: the first process owns the links, later ones are members, and when the owner ends, one of them owns the links",
		"0 or 1", "0, and 1 in /etc/ntbnet/fabric", owners,
		func(s *Spec, v string) bool { s.Share = v == "1"; return v == "0" || v == "1" }},
	{"lanes", "L", "lanes of each link, the same on all nodes", "a number from 1 to 8", "1", owners,
		func(s *Spec, v string) bool { return number(&s.Lanes, v, 1, maxLanes) }},
	{"slots", "N", "frames that a lane holds, the same on all nodes; fewer where that is more than a quarter of a bridge's window", "a number from 2 to 4096", "32", owners,
		func(s *Spec, v string) bool { return number(&s.Slots, v, 2, 4096) }},
	{"frame", "BYTES", "the most that a frame carries, the same on all nodes",
		"a multiple of 64 from 256 to 1048576", "67584", owners,
		func(s *Spec, v string) bool { return number(&s.FrameBytes, v, 256, 1<<20) && s.FrameBytes%64 == 0 }},
	{"failover", "1", "connections to a neighbour go on by the other way when the link is cut, at the cost of frames where there would be stores",
		"0 or 1", "0", owners,
		func(s *Spec, v string) bool { s.Failover = v == "1"; return v == "0" || v == "1" }},
	{"silence", "TIME", "how long nothing is heard of a neighbour before its link ends, where no lock, server or kernel says that its process has ended: over a memory of virtual machines, or when a machine at a bridge dies unheard",
		"a time from 1s to 1h, with its unit, as in 2s", "5s", owners,
		func(s *Spec, v string) bool { return duration(&s.Silence, v, time.Second, time.Hour) }},
	{"heap", "BYTES", "how much of the memory of the ends each node has for heaps of SHMEM, see docs/shmem.md. It is the same on all nodes. The ends are file:/PATH or ivshmem:/PATH, all of one memory. With puts=window it is how much of a bridge is for heaps",
		"a multiple of 4096 from 1048576 to 68719476736", "none", owners,
		func(s *Spec, v string) bool { return number(&s.Heap, v, 1<<20, 64<<30) && s.Heap%4096 == 0 }},
	{"puts", "window", "half of the bridge, or as much as heap says, is for heaps of SHMEM, on both nodes, of which there are two: see docs/shmem.md",
		"window or requests", "requests", owners,
		func(s *Spec, v string) bool { s.Puts = v == "window"; return s.Puts || v == "requests" }},
	{"left", "END", "what the wire to the node with the next lower number is made of, in a ring or line: see docs/hardware.md and docs/ivshmem.md",
		endWant, "memory between processes", owners,
		func(s *Spec, v string) bool { return s.setEnd(string(Left), v) }},
	{"right", "END", "the same, to the node with the next higher number", endWant, "memory between processes", owners,
		func(s *Spec, v string) bool { return s.setEnd(string(Right), v) }},
	{nodeOption, "END", "the same, in a mesh, to node I", endWant, "memory between processes", owners, nil},
}

// bridgeSays are the options of fabrics of several hosts that the kind of a bridge's fabric stands for.
var bridgeSays = []string{"backend", "nodes", "share", string(Left), string(Right), nodeOption}

// Options that there are for each node: nodeOption stands for node1 to node16.
const (
	nodeOption = "nodeI"
	hostOption = "hostI"
)

// findOption returns the option of that name. which is the node that a numbered one is about.
func findOption(name string) (o option, which int, ok bool) {
	for _, o := range options {
		prefix, numbered := strings.CutSuffix(o.name, "I")
		if !numbered && o.name == name {
			return o, 0, true
		}
		digits, ok := strings.CutPrefix(name, prefix)
		n, err := strconv.Atoi(digits)
		if numbered && ok && err == nil && n >= 1 && n <= MaxNodes && strconv.Itoa(n) == digits {
			return o, n, true
		}
	}
	return option{}, 0, false
}

// isID reports whether a name may be that of a user or a group.
func isID(name string) bool { return name != "" && !strings.ContainsAny(name, " :,/\x00\n") }

// number parses a number and reports whether it is from first to last.
func number(n *int, value string, first, last int) bool {
	var err error
	*n, err = strconv.Atoi(value)
	return err == nil && *n >= first && *n <= last
}

// duration parses a time and reports whether it is from first to last.
func duration(d *time.Duration, value string, first, last time.Duration) bool {
	var err error
	*d, err = time.ParseDuration(value)
	return err == nil && *d >= first && *d <= last
}

// takes reports whether options of a kind are for the fabric.
func (m *Meeting) takes(of whose) bool {
	switch of {
	case everyones:
		return true
	case paths:
		return IsPath(m.Name)
	}
	return m.Several()
}

// set sets an option of a spec.
func (s *Spec) set(name, value string) error {
	o, which, ok := findOption(name)
	if !ok {
		var names []string
		for _, o := range options {
			if s.takes(o.of) {
				names = append(names, o.name)
			}
		}
		last := len(names) - 1
		return fmt.Errorf("want %s or %s", strings.Join(names[:last], ", "), names[last])
	}
	if o.of == paths && !s.takes(paths) {
		return fmt.Errorf("%s:%s has a name; this is an option of fabrics that are a directory, as in %[1]s:/PATH", s.Kind, s.Name)
	}
	if s.OfBridge() && slices.Contains(bridgeSays, o.name) {
		return fmt.Errorf("%s says that: this is an option of ring:, line: and mesh: fabrics", BridgeKind)
	}
	if !s.takes(o.of) {
		return fmt.Errorf("%s:%s is one host; this is an option of ring:, line: and mesh: fabrics", s.Kind, s.Name)
	}
	set := o.set
	switch o.name {
	case nodeOption:
		set = func(s *Spec, v string) bool { return s.setEnd(name, v) }
	case hostOption:
		set = func(s *Spec, v string) bool { return s.Names.set(which, v) }
	}
	if !set(s, value) {
		return errors.New("want " + o.want)
	}
	return nil
}
