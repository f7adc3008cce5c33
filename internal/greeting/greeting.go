package greeting

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ring"
)

// The process that connected greets, and the other one answers. Each of the two is a frame:
//
//	 0  magic   8 bytes
//	 8  length  4 bytes, little endian
//	12          a greeting, or the answer to one, as JSON
//
// Magic, the place of the length, and the field "version" never change.
const (
	Magic      = "ntbhost\n"
	Version    = 2
	MaxMessage = 4 << 10 // bytes
	MaxAnswer  = 1 << 20 // bytes: a status may be long
)

// Purposes of a greeting.
const (
	WantLink    = "link"    // the cable becomes the bridge of wire Wire
	WantProcess = "process" // the cable becomes a bridge within the host
	WantUplink  = "uplink"  // the cable becomes the bridge of a member and the owner
	WantOwner   = "owner"   // a member is to look for the owner, which has just begun
	WantCheck   = "check"   // to learn whether the two may be in one fabric
	WantStatus  = "status"  // to learn what the process knows of itself and of the fabric
	WantFile    = "file"    // to get a descriptor of the file that the process lends by Key
)

// Message describes one process to another. Both sides compare.
type Message struct {
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
	// ErrNoGreeting reports that what came over the cable is no greeting.
	ErrNoGreeting = errors.New("not a greeting of a node")
	// ErrMismatch reports that two nodes cannot be in one fabric. They differ in
	// version, topology, number of nodes or lanes, or have the same number.
	ErrMismatch = errors.New("nodes do not fit")
)

// Write writes one frame.
func Write(w io.Writer, g *Message) error {
	b, err := g.Bytes()
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

func (g *Message) Bytes() ([]byte, error) {
	text, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	b := append([]byte(Magic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(text)))
	return append(b, text...), nil
}

// Read reads one frame of at most limit bytes, and not a byte more, because
// what follows carries files.
func Read(r io.Reader, limit int) (*Message, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[8:])
	if string(head[:8]) != Magic || n > uint32(limit) {
		return nil, fmt.Errorf("%w: it begins with %q", ErrNoGreeting, head)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	g := new(Message)
	// The version comes first, since another one may have other types of fields.
	var v struct{ Version int }
	if json.Unmarshal(text, &v) == nil && v.Version != Version {
		return &Message{Version: v.Version}, nil
	}
	if err := json.Unmarshal(text, g); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNoGreeting, err)
	}
	return g, nil
}

// Fits returns nil if the two may be in one fabric. It returns the same on both
// sides, up to which one it calls "this".
func (g *Message) Fits(other *Message) error {
	switch {
	case g.Version != other.Version:
		return fmt.Errorf("%w: this process greets in version %d, the other in %d: update the side with the lower one", ErrMismatch, g.Version, other.Version)
	case g.Ring != other.Ring:
		return fmt.Errorf("%w: node %d speaks version %d of the links, node %d version %d: %w",
			ErrMismatch, g.Node, g.Ring, other.Node, other.Ring, link.ErrVersion)
	case g.Topology != other.Topology, !g.open() && !other.open() && g.Plan() != other.Plan():
		return fmt.Errorf("%w: node %d is of %s, node %d of %s", ErrMismatch, g.Node, g.Plan(), other.Node, other.Plan())
	case other.Node < 1 || !g.open() && other.Node > g.Nodes:
		return fmt.Errorf("%w: node %d of %d", ErrMismatch, other.Node, g.Nodes)
	}
	return nil
}

// open reports whether the sender is a member that has met no owner. Any plan fits
// it.
func (g *Message) open() bool { return g.Member && g.Nodes == 0 }

// Plan returns a description for messages. The text may be a peer's.
func (g *Message) Plan() string {
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

// Bridges reports whether the cable becomes a bridge unless the greeting is
// refused.
func (g *Message) Bridges() bool {
	return g.Want == WantLink || g.Want == WantUplink || g.Want == WantProcess
}

// Ask sends a greeting over a cable and reads the answer. The cable is closed on
// error. It is also closed when ctx ends, unless release was called before.
func Ask(ctx context.Context, c Cable, g *Message) (answer *Message, release func() bool, err error) {
	release = context.AfterFunc(ctx, func() { c.Close() })
	if deadline, ok := ctx.Deadline(); ok {
		err = c.SetDeadline(deadline)
	}
	if err == nil && (g.Bridges() || g.Want == WantFile) {
		err = c.TakeFiles() // they come right behind the answer, or with it
	}
	if err == nil {
		err = Write(c, g)
	}
	if err == nil || errors.Is(err, syscall.EPIPE) { // one that has hung up may have said why before
		g, e := Read(c, MaxAnswer)
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

// CheckTimeout is how long a node that begins waits for another one's answer. A
// node that is stopped does not answer. If it does not fit, that is found when a
// link is made.
const CheckTimeout = time.Second

// Verdict returns what a process concludes from an answer. Its own comparison comes
// first, since its message fits both sides.
func (g *Message) Verdict(answer *Message) error {
	if err := g.Fits(answer); err != nil {
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

// Stopped returns the error of a question to a process, which says so if that is stopped.
func Stopped(pid int, err error) error {
	if !hostdir.Stopped(pid) {
		return err
	}
	return fmt.Errorf("pid %d is stopped: kill -CONT %[1]d, or end it: %[2]w", pid, err)
}

// Limits of a status, since an answer has at most maxAnswer bytes.
const (
	MaxPeerings    = 8192 // processes with which a process has connections
	MaxConnections = 1 << 30
)
