package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbivshmem"
	"github.com/ntbnet/ntbnet/ntb/ntbkernel"
)

// bridgeKind is the kind, in texts, of a line of two hosts with a bridge of the kernel between them. The
// kernel knows which of them this one is, and one process at a time has the bridge: it owns the links, and
// the others are its members. Its spec is that of a line, named by the address of the bridge.
const bridgeKind = "ntb"

// bridgeTimeout is how long a process waits until it is known which node it is, or until the process
// that has the bridge is in the fabric.
const bridgeTimeout = 10 * time.Second

// bridgeEnd is this side's end of a bridge. *ntbkernel.Attachment implements it.
type bridgeEnd interface {
	ntb.Attachment
	// Node returns which node this side is. It waits until that is settled.
	Node(context.Context) (int, error)
}

// attachBridge attaches the bridge with an address.
type attachBridge func(address string, o ntbkernel.Options) (bridgeEnd, error)

// attachKernel attaches a bridge of the kernel.
func attachKernel(address string, o ntbkernel.Options) (bridgeEnd, error) {
	return ntbkernel.Attach(address, o)
}

// bridgeOptions returns those of a bridge's end.
func (s *Spec) bridgeOptions() ntbkernel.Options {
	return ntbkernel.Options{Window: s.Window, Silence: s.Silence}
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
		return fmt.Errorf("want %s, or %s:ADDRESS of a PCI function, as in %[2]s:0000:b1:00.0: %w", bridgeKind, bridgeKind, syscall.EINVAL)
	}
	s.Kind, s.Name, s.Nodes, s.Backend = topologyLine, bridgeKind+"-"+strings.ReplaceAll(address, ":", "-"), 2, "shm"
	s.bridge, s.attachBridge = address, attachKernel
	return nil
}

// Shares reports whether the first process of the node owns the links, and later ones are its members.
func (s *Spec) Shares() bool { return s.bridge != "" || s.Share && s.Attach == nil }

// at returns the spec of a process of a node, at one end of the bridge if there is one.
func (s *Spec) at(node int) *Spec {
	own := *s
	if s.bridge == "" {
		return &own
	}
	own.Node = node
	side := Right
	if node == 2 {
		side = Left
	}
	own.ends = map[string]end{string(side): {kind: bridgeKind, target: s.bridge, places: 2}}
	return &own
}

// owned returns the node of this host whose links a process of the fabric owns.
func (s *Spec) owned() (node int, ok bool) {
	for node := 1; node <= s.Nodes; node++ {
		if s.Node != 0 && s.Node != node {
			continue
		}
		if there, err := shmPresent(s, node); err == nil && there {
			return node, true
		}
	}
	return 0, false
}

// Settled returns the spec with the number of this process' node, which that of a bridge lacks. It uses the
// bridge for a moment, unless a process of the fabric has it.
func (s *Spec) Settled(ctx context.Context) (*Spec, error) {
	switch {
	case s.bridge == "":
		return s, nil
	case s.Node != 0:
		return s.at(s.Node), nil
	}
	if node, ok := s.owned(); ok {
		return s.at(node), nil
	}
	a, err := s.attachBridge(s.bridge, s.bridgeOptions())
	if err != nil {
		return nil, err
	}
	defer a.Close()
	node, err := s.number(ctx, a)
	return s.at(node), err
}

// number returns which node the side with an end of the bridge is.
func (s *Spec) number(ctx context.Context, a bridgeEnd) (int, error) {
	if s.Node != 0 {
		return s.Node, nil
	}
	ctx, cancel := context.WithTimeout(ctx, bridgeTimeout)
	defer cancel()
	node, err := a.Node(ctx)
	if err != nil {
		return 0, fmt.Errorf("which node this is the two hosts settle when they first meet "+
			"(or say node=1 here, as in %s:%s?node=1, and node=2 there): %w", bridgeKind, s.bridge, err)
	}
	return node, nil
}

// take returns the spec of this process: that of the owner of the links, which then has the bridge, or that
// of a member, if the spec shares and another process owns the links. a is nil for a member and where there is no bridge.
func (s *Spec) take() (own *Spec, a bridgeEnd, err error) {
	if !s.Shares() {
		return s, nil, nil
	}
	for deadline := time.Now().Add(bridgeTimeout); ; time.Sleep(firstPause) {
		if node, ok := s.owned(); ok {
			return s.at(node).asMember(), nil, nil
		}
		if s.bridge == "" {
			return s, nil, nil
		}
		a, err := s.attachBridge(s.bridge, s.bridgeOptions())
		if errors.Is(err, ntb.ErrInUse) && time.Now().Before(deadline) {
			continue // a process that has just begun, perhaps
		}
		if err != nil {
			return nil, nil, fmt.Errorf("fabric %s:%s: %w", s.Kind, s.Name, err)
		}
		node, err := s.number(context.Background(), a)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("fabric %s:%s: %w", s.Kind, s.Name, err), a.Close())
		}
		return s.at(node).with(a), a, nil
	}
}

// asMember returns the spec of a process that is a member as long as another one owns the links.
func (s *Spec) asMember() *Spec {
	own, heir := *s, *s
	heir.Share = false // it gets the links, or stays a member
	own.heir, own.Share = &heir, false
	own.Nodes, own.Lanes, own.Slots, own.Frame, own.Failover, own.Silence, own.Heap, own.Puts, own.ends = 0, 0, 0, 0, false, 0, 0, false, nil
	return &own
}

// with returns the spec of the owner of the links, which has an end of the bridge.
func (s *Spec) with(a bridgeEnd) *Spec {
	own := *s
	own.bridge = ""
	own.Attach = func(Wire) (ntb.Attachment, error) { return a, nil }
	return &own
}

// Inherit has a process own the links that its node shares when their owner has ended, of which it was a member: open opens
// the fabric once more, beside f, by another spec. What it returns is called when f is closed. Inherit is called by
// Open's start.
func (f *Fabric) Inherit(open func(*Spec) (leave func(), err error)) { f.net.inherit = open }

// succeed waits until no process owns the links, and then opens the fabric of the owner. Of several members one
// gets them. A process that may not have them stays a member.
func (h *hosts) succeed() {
	said := ""
	for h.ctx.Err() == nil {
		h.mu.Lock()
		changed, pause := h.changed, time.Duration(0)
		up, alone := h.links[0].up(), h.links[0].absent
		h.mu.Unlock()
		if alone {
			err := h.own()
			if err == nil {
				return
			}
			if errors.Is(err, fs.ErrPermission) {
				slog.Warn("fabric: nobody owns the links of this node, and this process may not", "reason", err)
				return
			}
			if !errors.Is(err, ntb.ErrInUse) && !errors.Is(err, syscall.EADDRINUSE) && err.Error() != said {
				said = err.Error()
				slog.Warn("fabric: nobody owns the links of this node, it is tried again", "reason", err)
			}
		}
		if !up {
			pause = lookAgain
		}
		h.wait(h.ctx, pause, changed, nil)
	}
}

// own opens the fabric of the owner, if this process gets the links.
func (h *hosts) own() error {
	heir := h.spec.heir
	if heir.bridge == "" {
		leave, err := h.inherit(heir)
		h.leave = leave
		return err
	}
	a, err := heir.attachBridge(heir.bridge, heir.bridgeOptions())
	if err != nil {
		return err
	}
	leave, err := h.inherit(heir.with(a))
	if err != nil {
		return errors.Join(err, a.Close())
	}
	h.leave = leave
	return nil
}
