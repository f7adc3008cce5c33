package spec

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbivshmem"
	"github.com/ntbnet/ntbnet/ntb/ntbkernel"
)

// BridgeKind is the kind, in texts, of a line of two hosts with a bridge of the kernel between them. The
// kernel knows which of them this one is, and one process at a time has the bridge: it owns the links, and
// the others are its members. Its spec is that of a line, named by the address of the bridge.
const BridgeKind = "ntb"

// bridgeTimeout is how long a process waits until it is known which node it is, or until the process
// that has the bridge is in the fabric.
const bridgeTimeout = 10 * time.Second

// BridgeEnd is this side's end of a bridge. *ntbkernel.Attachment implements it.
type BridgeEnd interface {
	ntb.Attachment
	// Node returns which node this side is. It waits until that is settled.
	Node(context.Context) (int, error)
}

// bridge is a bridge of the kernel that joins two hosts.
type bridge struct {
	address string // "" for none

	// AttachBridge, if not nil, attaches bridges of the kernel, for tests.
	AttachBridge func(address string, o ntbkernel.Options) (BridgeEnd, error)
}

// OfBridge reports whether the fabric is a bridge of the kernel, of which this process is at neither end yet.
func (b *bridge) OfBridge() bool { return b.address != "" }

// attachBridge attaches the bridge with an address.
func (s *Spec) attachBridge(address string) (BridgeEnd, error) {
	o := ntbkernel.Options{Window: s.Window, Silence: s.Silence}
	if s.AttachBridge != nil {
		return s.AttachBridge(address, o)
	}
	return ntbkernel.Attach(address, o)
}

// nameBridge makes the spec that of a bridge. The address "" stands for the only one of the machine.
func (s *Spec) nameBridge(address string) error {
	if address == "" {
		var err error
		if address, err = ntbkernel.Find(); err != nil {
			return err
		}
	}
	if !ntbivshmem.IsAddress(address) {
		return fmt.Errorf("want %s, or %s:ADDRESS of a PCI function, as in %[2]s:0000:b1:00.0: %w", BridgeKind, BridgeKind, syscall.EINVAL)
	}
	s.Kind, s.Name, s.Nodes, s.Backend = TopologyLine, BridgeKind+"-"+strings.ReplaceAll(address, ":", "-"), 2, "shm"
	s.address = address
	return nil
}

// Shares reports whether the first process of the node owns the links, and later ones are its members.
func (s *Spec) Shares() bool { return s.OfBridge() || s.Share && s.Attach == nil }

// at returns the spec of a process of a node, at one end of the bridge if there is one.
func (s *Spec) at(node int) *Spec {
	own := *s
	if !s.OfBridge() {
		return &own
	}
	own.Node = node
	side := Right
	if node == 2 {
		side = Left
	}
	own.ends = map[string]end{string(side): {kind: BridgeKind, target: s.address, places: 2}}
	return &own
}

// Settled returns the spec with the number of this process' node, which that of a bridge lacks. It uses the
// bridge for a moment, unless a process of the fabric has it.
func (s *Spec) Settled(ctx context.Context) (*Spec, error) {
	switch {
	case !s.OfBridge():
		return s, nil
	case s.Node != 0:
		return s.at(s.Node), nil
	}
	if node, ok := s.owned(); ok {
		return s.at(node), nil
	}
	a, err := s.attachBridge(s.address)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	node, err := s.number(ctx, a)
	return s.at(node), err
}

// number returns which node the side with an end of the bridge is.
func (b *bridge) number(ctx context.Context, a BridgeEnd) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, bridgeTimeout)
	defer cancel()
	node, err := a.Node(ctx)
	if err != nil {
		return 0, fmt.Errorf("which node this is the two hosts settle when they first meet "+
			"(or say node=1 here, as in %s:%s?node=1, and node=2 there): %w", BridgeKind, b.address, err)
	}
	return node, nil
}

// takePause is the pause between tries to attach a bridge that another process has.
const takePause = 10 * time.Millisecond

// Take returns the spec of this process: that of the owner of the links, which then has the bridge, or that
// of a member, if the spec shares and another process owns the links. a is nil for a member and where there is no bridge.
func (s *Spec) Take() (own *Spec, a BridgeEnd, err error) {
	if !s.Shares() {
		return s, nil, nil
	}
	for deadline := time.Now().Add(bridgeTimeout); ; time.Sleep(takePause) {
		if node, ok := s.owned(); ok {
			return s.at(node).AsMember(), nil, nil
		}
		if !s.OfBridge() {
			return s, nil, nil
		}
		a, err := s.attachBridge(s.address)
		if errors.Is(err, ntb.ErrInUse) && time.Now().Before(deadline) {
			continue // a process that has just begun, perhaps
		}
		if err != nil {
			return nil, nil, fmt.Errorf("fabric %s:%s: %w", s.Kind, s.Name, err)
		}
		node := s.Node
		if node == 0 {
			node, err = s.number(context.Background(), a)
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("fabric %s:%s: %w", s.Kind, s.Name, err), a.Close())
		}
		return s.at(node).with(a), a, nil
	}
}

// AsMember returns the spec of a process that is a member as long as another one owns the links.
func (s *Spec) AsMember() *Spec {
	own, takeover := *s, *s
	takeover.Share = false // it gets the links, or stays a member
	own.takeover, own.Links, own.Nodes = &takeover, Links{}, 0
	return &own
}

// with returns the spec of the owner of the links, which has an end of the bridge.
func (s *Spec) with(a BridgeEnd) *Spec {
	own := *s
	own.address = ""
	own.Attach = func(Wire) (ntb.Attachment, error) { return a, nil }
	return &own
}

// TakesOver reports whether the process may own the links of its node when their owner has ended.
func (s *Spec) TakesOver() bool { return s.takeover != nil }

// TakeOver returns the spec with which this process owns the links of its node. Where they are a bridge, it has it then;
// release gives that back if the fabric is not opened.
func (s *Spec) TakeOver() (own *Spec, release func() error, err error) {
	takeover := s.takeover
	if !takeover.OfBridge() {
		return takeover, func() error { return nil }, nil
	}
	a, err := takeover.attachBridge(takeover.address)
	if err != nil {
		return nil, nil, err
	}
	return takeover.with(a), a.Close, nil
}
