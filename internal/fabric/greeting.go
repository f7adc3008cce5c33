package fabric

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ring"
)

// Greetings are exchanged over a cable between two processes of a fabric, before the
// cable becomes a bridge. The process that connected greets, and
// the other one answers. Each of the two is a frame:
//
//	 0  magic   8 bytes
//	 8  length  4 bytes, little endian
//	12          a greeting, or the answer to one, as JSON
//
// Magic, the place of the length, and the field "version" never change.
const (
	greetingMagic   = "ntbhost\n"
	greetingVersion = 2
	maxGreeting     = 4 << 10 // bytes
	maxAnswer       = 1 << 20 // bytes: a status may be long
)

// Purposes of a greeting.
const (
	wantLink    = "link"    // the cable becomes the bridge of wire Wire
	wantProcess = "process" // the cable becomes a bridge within the host
	wantUplink  = "uplink"  // the cable becomes the bridge of a member and the owner
	wantOwner   = "owner"   // a member is to look for the owner, which has just begun
	wantCheck   = "check"   // to learn whether the two may be in one fabric
	wantStatus  = "status"  // to learn what the process knows of itself and of the fabric
	wantFile    = "file"    // to get a descriptor of the file that the process lends by Key
)

// greeting describes one process to another. Both sides compare.
type greeting struct {
	Version  int    `json:"version"` // of the greeting
	Ring     int    `json:"ring"`    // link.Version
	Want     string `json:"want,omitempty"`
	Topology string `json:"topology,omitempty"`
	Nodes    int    `json:"nodes,omitempty"`
	Lanes    int    `json:"lanes,omitempty"`
	Slots    int    `json:"slots,omitempty"`
	Frame    int    `json:"frame,omitempty"`
	Node     int    `json:"node,omitempty"`    // its own number
	Process  int    `json:"process,omitempty"` // on its host
	Member   bool   `json:"member,omitempty"`  // it owns no links
	Wire     int    `json:"wire,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Key      uint64 `json:"key,omitempty"` // of "file"

	// Only in an answer.
	Busy    bool            `json:"busy,omitempty"`    // this link is being made already; no error
	Refused string          `json:"refused,omitempty"` // the reason, if refused
	Full    bool            `json:"full,omitempty"`    // refused for now: its user has too many links, or the process too many files
	Status  *status.Process `json:"status,omitempty"`
}

// Errors of greetings.
var (
	// errGreeting reports that what came over the cable is no greeting.
	errGreeting = errors.New("not a greeting of a node")
	// ErrMismatch reports that two nodes cannot be in one fabric. They differ in
	// version, topology, number of nodes or lanes, or have the same number.
	ErrMismatch = errors.New("nodes do not fit")
)

// writeGreeting writes one frame.
func writeGreeting(w io.Writer, g *greeting) error {
	b, err := g.frame()
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

func (g *greeting) frame() ([]byte, error) {
	text, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	b := append([]byte(greetingMagic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(text)))
	return append(b, text...), nil
}

// readGreeting reads one frame of at most limit bytes, and not a byte more, because
// what follows carries files.
func readGreeting(r io.Reader, limit int) (*greeting, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[8:])
	if string(head[:8]) != greetingMagic || n > uint32(limit) {
		return nil, fmt.Errorf("%w: it begins with %q", errGreeting, head)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	g := new(greeting)
	// The version comes first, since another one may have other types of fields.
	var v struct{ Version int }
	if json.Unmarshal(text, &v) == nil && v.Version != greetingVersion {
		return &greeting{Version: v.Version}, nil
	}
	if err := json.Unmarshal(text, g); err != nil {
		return nil, fmt.Errorf("%w: %v", errGreeting, err)
	}
	return g, nil
}

// fits returns nil if the two may be in one fabric. It returns the same on both
// sides, up to which one it calls "this".
func (g *greeting) fits(other *greeting) error {
	switch {
	case g.Version != other.Version:
		return fmt.Errorf("%w: this process greets in version %d, the other in %d: update the side with the lower one", ErrMismatch, g.Version, other.Version)
	case g.Ring != other.Ring:
		return fmt.Errorf("%w: node %d speaks version %d of the links, node %d version %d: %w",
			ErrMismatch, g.Node, g.Ring, other.Node, other.Ring, link.ErrVersion)
	case g.Topology != other.Topology, !g.open() && !other.open() && g.plan() != other.plan():
		return fmt.Errorf("%w: node %d is of %s, node %d of %s", ErrMismatch, g.Node, g.plan(), other.Node, other.plan())
	case other.Node < 1 || !g.open() && other.Node > g.Nodes:
		return fmt.Errorf("%w: node %d of %d", ErrMismatch, other.Node, g.Nodes)
	}
	return nil
}

// open reports whether the sender is a member that has met no owner. Any plan fits
// it.
func (g *greeting) open() bool { return g.Member && g.Nodes == 0 }

// plan returns a description for messages. The text may be a peer's.
func (g *greeting) plan() string {
	if g.open() {
		return fmt.Sprintf("a %.8q", g.Topology)
	}
	text := fmt.Sprintf("a %.8q of %d nodes, lanes=%d", g.Topology, g.Nodes, g.Lanes)
	if g.Slots != 0 && g.Slots != ring.DefaultSlots {
		text += fmt.Sprintf(", slots=%d", g.Slots)
	}
	if g.Frame != 0 && g.Frame != ring.DefaultFrame {
		text += fmt.Sprintf(", frame=%d", g.Frame)
	}
	return text
}
