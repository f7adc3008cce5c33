package fabric

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbdma"
	"github.com/ntbnet/ntbnet/ntb/ntbfault"
)

// Spec is a fabric and its options, in the form KIND:NAME?OPTION=VALUE&…
//
// The kinds are shm (the processes of one host), mem (one process, for tests),
// and, for several hosts with bridges between them, ring, line and mesh: each
// node with the two next to it, the same without a link between the last and the
// first, or each with each, as behind a switch. Those need a node's number. The
// process that also says how many nodes there are owns that node's links; there is
// one. Others of the same node are its members: they reach other nodes through it,
// and the options from nodes to failover are not theirs.
//
//	node=I        this process' node, 1 to nodes. There is no node 0.
//	nodes=N       how many nodes the fabric has, 2 to 16, the same for all
//	lanes=L       lanes of each link, 1 to 8, the same for all; 1 unless given
//	slots=N       frames that a lane holds, 2 to 4096, the same for all; 8 unless
//	              given
//	frame=BYTES   the most that a frame carries, 256 to 1048576, a multiple of 64,
//	              the same for all; 67584 unless given
//	failover=1    connections to a neighbour go on by the other way when the link
//	              is cut, at the cost of frames where there would be stores; 0
//	              unless given
//	backend=NAME  what the links are made of: shm, between processes, or mem,
//	              within one process, for tests; shm unless given
//
// The others may be given with each kind:
//
//	window=BYTES  size of this side's window on each link, a multiple of 4096,
//	              128 KiB or more
//	buffer=BYTES  how large a connection's queue may grow, per direction: a power
//	              of two from 4096 to 16777216
//	spin=TIME     how long a wait looks before it sleeps, "0" to "1ms"
//	dma=N         a DMA engine of software with N channels, 0 to 16: for trials
//	dmafrom=BYTES size from which on payload goes through an engine, 1 or more;
//	              0 to measure it when a link comes up
//	fault=SEED    of mem alone, for tests: bridges whose stores and doorbells are
//	              late, and whose doorbells are repeated and lost, from a seed; 0:
//	              not
type Spec struct {
	Kind, Name string
	Node       int // 1 to Nodes; 0 where there is one host
	Nodes      int // 2 to maxNodes; 0 for members and where there is one host
	Lanes      int // 1 to maxLanes; 0 likewise
	Slots      int // of a lane; 0 for the default
	Frame      int // bytes; 0 for the default
	Failover   bool
	Backend    string        // "shm" or "mem"
	Window     int           // 0: the kind's default
	Buffer     int           // 0: the default
	Spin       time.Duration // -1: the default
	DMA        int           // channels of a software engine
	DMAFrom    int
	Fault      uint64 // seed; 0: the bridges do as they should

	// Retention is ring.Options.Retention, for tests; 0: the default.
	Retention int
}

// DefaultSpec is the fabric of a process that names none: SDP_FABRIC's, or else
// the user's own on this machine.
func DefaultSpec() string {
	if spec := os.Getenv(EnvFabric); spec != "" {
		return spec
	}
	return "shm:" + DefaultName
}

// ParseSpec checks a spec. The error wraps EINVAL and says what is wanted.
func ParseSpec(s string) (*Spec, error) {
	rest, query, _ := strings.Cut(s, "?")
	spec := &Spec{Spin: -1}
	spec.Kind, spec.Name, _ = strings.Cut(rest, ":")
	switch {
	case spec.Kind == "shm", spec.Kind == "mem":
		spec.Backend = spec.Kind
	case isTopology(spec.Kind):
		spec.Backend = "shm"
	default:
		return nil, fmt.Errorf("fabric %q: want shm:NAME, mem:NAME, or ring:NAME?node=I&nodes=N, or line: or mesh: in place of ring: %w", s, syscall.EINVAL)
	}
	if err := checkName(spec.Name); err != nil {
		return nil, err
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("fabric %q: %v: %w", s, err, syscall.EINVAL)
	}
	for _, name := range slices.Sorted(maps.Keys(options)) { // the same error each time
		values := options[name]
		if len(values) > 1 {
			return nil, fmt.Errorf("fabric %q: option %s is there twice: %w", s, name, syscall.EINVAL)
		}
		if err := spec.set(name, values[0]); err != nil {
			return nil, fmt.Errorf("fabric %q: option %s=%s: %v: %w", s, name, values[0], err, syscall.EINVAL)
		}
	}
	if err := spec.checkHosts(); err != nil {
		return nil, fmt.Errorf("fabric %q: %v: %w", s, err, syscall.EINVAL)
	}
	return spec, nil
}

// Limits of a fabric of several hosts.
const (
	minNodes = 2
	maxNodes = 16
	maxLanes = 8
)

// hosts tells that the fabric has several hosts.
func (s *Spec) hosts() bool { return isTopology(s.Kind) }

// member tells that the process owns no links to other hosts.
func (s *Spec) member() bool { return s.hosts() && s.Nodes == 0 }

// checkHosts looks for what a fabric of several hosts must have.
func (s *Spec) checkHosts() error {
	switch {
	case !s.hosts():
		return nil
	case s.Node == 0 && s.Nodes == 0:
		return fmt.Errorf("option node is missing: say which this is, as in node=1&nodes=4, or node=1 if another process owns the links of that node")
	case s.Node == 0:
		return fmt.Errorf("option node is missing: say which this is, node=1 to node=%d", s.Nodes)
	case s.Nodes == 0 && (s.Lanes != 0 || s.Slots != 0 || s.Frame != 0 || s.Failover):
		return fmt.Errorf("lanes, slots, frame and failover are for the owner of the links, which says nodes=%d to nodes=%d too", minNodes, maxNodes)
	case s.Nodes == 0:
		return nil
	case s.Node > s.Nodes:
		return fmt.Errorf("option node=%d: want 1 to %d, since nodes=%[2]d", s.Node, s.Nodes)
	}
	s.Lanes = max(s.Lanes, 1)
	return nil
}

// hostOptions are those of fabrics of several hosts alone.
var hostOptions = []string{"node", "nodes", "lanes", "slots", "frame", "failover", "backend"}

func (s *Spec) set(name, value string) (err error) {
	if !s.hosts() && slices.Contains(hostOptions, name) {
		return fmt.Errorf("%s:%s is one host; this is an option of ring:, line: and mesh: fabrics", s.Kind, s.Name)
	}
	switch name {
	case "node":
		s.Node, err = number(value, 1, maxNodes)
	case "nodes":
		s.Nodes, err = number(value, minNodes, maxNodes)
	case "lanes":
		s.Lanes, err = number(value, 1, maxLanes)
	case "slots":
		s.Slots, err = number(value, 2, 4096)
	case "frame":
		s.Frame, err = number(value, 256, 1<<20)
		if err == nil && s.Frame%64 != 0 {
			err = fmt.Errorf("want a multiple of 64")
		}
	case "failover":
		var n int
		n, err = number(value, 0, 1)
		s.Failover = n == 1
	case "backend":
		s.Backend = value
		if value != "shm" && value != "mem" {
			err = fmt.Errorf("want shm or mem")
		}
	case "window":
		s.Window, err = strconv.Atoi(value)
		if err != nil || s.Window < 128<<10 || s.Window > 64<<30 || s.Window%4096 != 0 {
			err = fmt.Errorf("want bytes, a multiple of 4096 from 131072 to 68719476736")
		}
	case "buffer":
		s.Buffer, err = strconv.Atoi(value)
		if err != nil || s.Buffer < 4<<10 || s.Buffer > 16<<20 || s.Buffer&(s.Buffer-1) != 0 {
			err = fmt.Errorf("want bytes, a power of two from 4096 to 16777216")
		}
	case "spin":
		s.Spin, err = time.ParseDuration(value)
		if err != nil || s.Spin < 0 || s.Spin > time.Millisecond {
			err = fmt.Errorf("want a time from 0 to 1ms, with its unit, as in 20us")
		}
	case "dma":
		s.DMA, err = number(value, 0, 16)
	case "dmafrom":
		s.DMAFrom, err = strconv.Atoi(value)
		if err != nil || s.DMAFrom < 0 {
			err = fmt.Errorf("want 0 or more bytes")
		}
	case "fault":
		s.Fault, err = strconv.ParseUint(value, 10, 32)
		if err != nil {
			err = fmt.Errorf("want a number")
		} else if s.Kind != "mem" {
			err = fmt.Errorf("this is an option of mem: fabrics")
		}
	default:
		err = fmt.Errorf("want window, buffer, spin, dma or dmafrom")
		if s.hosts() {
			err = fmt.Errorf("want node, nodes, lanes, slots, frame, failover, backend, window, buffer, spin, dma or dmafrom")
		}
	}
	return err
}

// number reads a number from first to last.
func number(value string, first, last int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < first || n > last {
		return 0, fmt.Errorf("want a number from %d to %d", first, last)
	}
	return n, nil
}

// wrapPair puts a pair that misbehaves around the ends of a bridge within this process,
// and the software engine around them, if the spec asks for it.
func (s *Spec) wrapPair(a, b ntb.Device) (ntb.Device, ntb.Device) {
	if s.Fault != 0 {
		x, y := ntbfault.Pair(a, b, ntbfault.Options{
			Seed: s.Fault, StoreDelayMax: 50 * time.Microsecond, DoorbellDelayMax: 100 * time.Microsecond,
			RepeatDoorbell: 0.3, DropDoorbell: 0.002,
		})
		a, b = x, y
	}
	return s.wrap(a), s.wrap(b)
}

// wrap puts the software engine around a device, if the spec asks for one.
func (s *Spec) wrap(dev ntb.Device) ntb.Device {
	if s.DMA == 0 {
		return dev
	}
	return ntbdma.Wrap(dev, ntbdma.Options{Channels: s.DMA})
}
