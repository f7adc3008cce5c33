package hello

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
)

// Version is the version of messages and records. A Hello of another one is refused.
const Version = 8

// VersionError reports that the peer's messages are of another version. It wraps
// EPROTONOSUPPORT.
type VersionError struct{ Peer uint8 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("messages are of version %d here, of %d at the peer: update the side with the lower one", Version, e.Peer)
}

// Unwrap returns EPROTONOSUPPORT.
func (e *VersionError) Unwrap() error { return syscall.EPROTONOSUPPORT }

// Network is the network of the connection that a Hello asks for.
type Network uint8

// Networks of a Hello.
const (
	SDP     Network = iota // a port
	OverTCP                // network "tcp"
)

// ErrMalformed reports a message that no honest peer would send.
var ErrMalformed = errors.New("malformed set-up message")

// Reason is why a Hello was refused.
type Reason uint16

// Reasons of a Refuse.
const (
	NotListening  Reason = 1 + iota // nothing listens on the port
	BacklogFull                     // too many connections wait for Accept
	WindowFull                      // no memory for another connection
	BadVersion                      // the Hello is of another version
	OtherProcess                    // another process of the host holds the port
	AddressTaken                    // a connection with these addresses exists
	Forbidden                       // the listener does not admit the user of the process
	TooMany                         // the user of the process has too many connections there
	UnknownSource                   // the listener's node has no such address of the dialling one
	lastReason    = UnknownSource
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case NotListening:
		return "nobody listens on the port"
	case BacklogFull:
		return "the listener's backlog is full"
	case WindowFull:
		return "the listener's window is full"
	case BadVersion:
		return "the listener speaks another version"
	case OtherProcess:
		return "another process of the host holds the port"
	case AddressTaken:
		return "there is a connection between these two addresses"
	case Forbidden:
		return "the listener does not admit this user"
	case TooMany:
		return "the listener's process has as many connections of this user as it takes of another user"
	case UnknownSource:
		return "the hosts of the listener's node do not give this source address to the dialling node"
	}
	return fmt.Sprintf("reason %d", uint16(r))
}

// Endpoint says where one side's control block and first queue are. Its fields are those of
// bounce.Endpoint.
type Endpoint struct {
	Slot   uint32
	Gen    uint32
	Offset uint64
	Size   uint32
}

// Hello asks for a connection from port From to port To.
type Hello struct {
	Version  uint8
	Network  Network
	From     uint16
	To       uint16
	Endpoint Endpoint
	TCP      TCP // of OverTCP
}

// TCP is what a connection of network "tcp" has in addition to its ports. All of it is
// zero if the listener is found by its port.
type TCP struct {
	Cookie    uint64 // of the socket in place of which the connection is accepted
	Namespace uint64 // of that socket
	// Addresses are IPv6, or IPv4 mapped into it. A zone is the number of an interface.
	Source, Destination         [16]byte
	SourceZone, DestinationZone uint32
}

// Asks reports whether the Hello asks for the listener of the TCP socket that a connection from its
// source to its destination would reach. The answering host finds out which socket that is.
func (h *Hello) Asks() bool {
	return h.Network == OverTCP && h.TCP.Cookie == 0 && h.TCP.Destination != [16]byte{}
}

// HelloAck accepts the Hello whose Endpoint had Slot and Gen.
type HelloAck struct {
	Slot, Gen uint32
	Endpoint  Endpoint
}

// Refuse refuses that Hello.
type Refuse struct {
	Version   uint8 // of the listener; another one if the reason is BadVersion, and only then
	Slot, Gen uint32
	Reason    Reason
	Process   uint16 // for OtherProcess the process, 1 to 65535; else 0
}

const (
	typeHello  = 1
	typeAck    = 2
	typeRefuse = 3

	endpointSize = 20
	helloSize    = 8 + endpointSize
	tcpSize      = helloSize + 60 // of a Hello of OverTCP
	ackSize      = 12 + endpointSize
	refuseSize   = 16
)

var le = binary.LittleEndian

// Marshal returns the message as it goes over the wire.
func (h *Hello) Marshal() []byte {
	b := make([]byte, 8, tcpSize)
	b[0], b[1] = typeHello, h.Version
	le.PutUint16(b[2:], h.From)
	le.PutUint16(b[4:], h.To)
	b[6] = uint8(h.Network)
	b = h.Endpoint.append(b)
	if h.Network == OverTCP {
		b = h.TCP.append(b)
	}
	return b
}

// Marshal returns the message as it goes over the wire.
func (a *HelloAck) Marshal() []byte {
	b := make([]byte, 12, ackSize)
	b[0] = typeAck
	le.PutUint32(b[4:], a.Slot)
	le.PutUint32(b[8:], a.Gen)
	return a.Endpoint.append(b)
}

// Marshal returns the message as it goes over the wire.
func (r *Refuse) Marshal() []byte {
	b := make([]byte, refuseSize)
	b[0], b[1] = typeRefuse, r.Version
	le.PutUint32(b[4:], r.Slot)
	le.PutUint32(b[8:], r.Gen)
	le.PutUint16(b[12:], uint16(r.Reason))
	le.PutUint16(b[14:], r.Process)
	return b
}

func (e *Endpoint) append(b []byte) []byte {
	b = le.AppendUint32(b, e.Slot)
	b = le.AppendUint32(b, e.Gen)
	b = le.AppendUint64(b, e.Offset)
	return le.AppendUint32(b, e.Size)
}

func (t *TCP) append(b []byte) []byte {
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, t.Cookie)
	b = le.AppendUint64(b, t.Namespace)
	b = append(b, t.Source[:]...)
	b = append(b, t.Destination[:]...)
	b = le.AppendUint32(b, t.SourceZone)
	return le.AppendUint32(b, t.DestinationZone)
}

// parseTCP parses what append has appended.
func parseTCP(b []byte) TCP {
	t := TCP{
		Cookie: le.Uint64(b[4:]), Namespace: le.Uint64(b[12:]),
		SourceZone: le.Uint32(b[52:]), DestinationZone: le.Uint32(b[56:]),
	}
	copy(t.Source[:], b[20:])
	copy(t.Destination[:], b[36:])
	return t
}

func parseEndpoint(b []byte) Endpoint {
	return Endpoint{Slot: le.Uint32(b), Gen: le.Uint32(b[4:]), Offset: le.Uint64(b[8:]), Size: le.Uint32(b[16:])}
}

// Parse returns a *Hello, a *HelloAck or a *Refuse. It checks the form only. What
// an Endpoint may name is checked where it is used.
func Parse(b []byte) (any, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrMalformed)
	}
	switch {
	case b[0] == typeHello && len(b) >= 16 && b[1] != Version:
		// Only this much is the same in every version: enough to refuse it.
		return &Hello{Version: b[1], Endpoint: Endpoint{Slot: le.Uint32(b[8:]), Gen: le.Uint32(b[12:])}}, nil
	case b[0] == typeHello && len(b) == helloSize && Network(b[6]) == SDP,
		b[0] == typeHello && len(b) == tcpSize && Network(b[6]) == OverTCP:
		return parseHello(b)
	case b[0] == typeAck && len(b) == ackSize && b[1]|b[2]|b[3] == 0:
		return &HelloAck{Slot: le.Uint32(b[4:]), Gen: le.Uint32(b[8:]), Endpoint: parseEndpoint(b[12:])}, nil
	case b[0] == typeRefuse && len(b) >= 14 && b[1] != Version && Reason(le.Uint16(b[12:])) == BadVersion:
		// And this much, to learn of it.
		return &Refuse{Version: b[1], Slot: le.Uint32(b[4:]), Gen: le.Uint32(b[8:]), Reason: BadVersion}, nil
	case b[0] == typeRefuse && len(b) == refuseSize && b[1] == Version && b[2]|b[3] == 0:
		r := &Refuse{Version: b[1], Slot: le.Uint32(b[4:]), Gen: le.Uint32(b[8:]), Reason: Reason(le.Uint16(b[12:])), Process: le.Uint16(b[14:])}
		if r.Reason < NotListening || r.Reason > lastReason || r.Reason == BadVersion || (r.Reason == OtherProcess) != (r.Process != 0) {
			return nil, fmt.Errorf("%w: Refuse for %v, process %d", ErrMalformed, r.Reason, r.Process)
		}
		return r, nil
	}
	return nil, fmt.Errorf("%w: type %d, %d bytes", ErrMalformed, b[0], len(b))
}

// parseHello takes one of this version, and of a size that fits its network.
func parseHello(b []byte) (*Hello, error) {
	h := &Hello{Version: b[1], Network: Network(b[6]), From: le.Uint16(b[2:]), To: le.Uint16(b[4:]), Endpoint: parseEndpoint(b[8:])}
	zeros := uint32(b[7])
	if h.Network == OverTCP {
		zeros |= le.Uint32(b[helloSize:])
		h.TCP = parseTCP(b[helloSize:])
	}
	if h.From == 0 || h.To == 0 || zeros != 0 {
		return nil, fmt.Errorf("%w: Hello from port %d to port %d", ErrMalformed, h.From, h.To)
	}
	return h, nil
}
