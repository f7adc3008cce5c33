package link

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Scratchpads of a link's bring-up. The peer writes all of them.
const (
	spadMagic  = 0 // Magic<<16 | version, written last
	spadID     = 1 // the peer's id
	spadWindow = 2 // size of the peer's inbound window, KiB
	spadEpoch  = 3 // a random number, not 0
	spadSeen   = 4 // our epoch, once the peer has seen it

	Magic = 0x4e7b     // names the protocol
	Gone  = ^uint32(0) // what a scratchpad reads when the link is down
)

// retryEvery is how often a side repeats its scratchpads, since what it wrote while
// the other side was down is lost.
const retryEvery = 5 * time.Millisecond

// bringUp sends the peer this process' id, window and epoch until both sides have
// seen each other's. run must be running already. Then the peer is open.
func (p *Peer) bringUp(ctx context.Context) error {
	x := Exchange{
		Device: p.bridge.Device,
		Words: []uint32{
			spadMagic: Magic<<16 | Version, spadID: uint32(p.node.id), spadWindow: uint32(len(p.in) >> 10), spadSeen: 0,
		},
		Check:    p.checkPeer,
		Written:  func() { p.bridge.RingDoorbell(doorbellBit) },
		Doorbell: p.kick, Down: p.done,
		Every: retryEvery,
	}
	if _, _, err := x.Run(ctx); err != nil {
		if errors.Is(err, ErrDown) {
			<-p.done
			err = p.Err() // which may have the reason
		}
		return err
	}
	return p.open()
}

// open has the services learn of the peer (pair S17, with run).
func (p *Peer) open() error {
	for number, s := range p.node.services {
		if s != nil {
			p.handlers[number] = s.Open(p)
		}
	}
	// This is under looks.mu, so that either stop finds the handlers, or this code
	// finds that stop is done.
	p.looks.mu.Lock()
	if p.looks.stopped {
		p.handlersDown()
		p.looks.mu.Unlock()
		return p.Err()
	}
	p.up.Store(true)
	p.looks.mu.Unlock()
	// What was announced before up was set has rung already. A peer that goes
	// on storing keeps the link's goroutine busy, not the caller.
	if p.drainSome() {
		go p.drain()
	}
	return nil
}

// checkPeer checks the peer's scratchpads.
func (p *Peer) checkPeer() error {
	word := p.bridge.Spad(spadMagic)
	if Absent(word) {
		return ErrNotYet
	}
	if word>>16 != Magic {
		return fmt.Errorf("%w: scratchpad 0 is %#x, not of this protocol", ErrProtocol, word)
	}
	if v := word & 0xffff; v != Version {
		return fmt.Errorf("%w: this side speaks %d, the peer %d", ErrVersion, Version, v)
	}
	id, window := p.bridge.Spad(spadID), p.bridge.Spad(spadWindow)
	if Absent(id, window) {
		return ErrNotYet
	}
	if int(window) != p.out.Len()>>10 {
		return fmt.Errorf("%w: peer says its window has %d KiB, the bridge says %d", ErrProtocol, window, p.out.Len()>>10)
	}
	p.id = ID(id)
	return nil
}
