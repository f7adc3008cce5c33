package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Scratchpads of a link's bring-up, written by the peer:
const (
	spadMagic  = 0 // Magic<<16 | version, written last
	spadID     = 1 // the peer's id
	spadWindow = 2 // size of the peer's inbound window, KiB
	spadEpoch  = 3 // a random number, not 0
	spadSeen   = 4 // our epoch, once the peer has seen it

	Magic = 0x4e7b
	Gone  = ^uint32(0) // what a scratchpad reads when the link is down
)

// RetryEvery is how often a side repeats its scratchpads, since what it wrote while
// the other side was down is lost. Stores for a routed peer are never lost.
const RetryEvery = 5 * time.Millisecond

// refuseWait is how long the other side may take to find why it is refused.
const refuseWait = time.Second

// Refusal is why a bring-up refuses the other side.
type Refusal struct {
	Err  error            // nil: it does not
	Over <-chan time.Time // the other side has had refuseWait
}

// Begin begins a refusal, unless one has begun.
func (r *Refusal) Begin(why error) {
	if r.Err == nil {
		r.Err, r.Over = why, time.After(refuseWait)
	}
}

// Or returns why the other side is refused, or err if it is not.
func (r *Refusal) Or(err error) error {
	if r.Err != nil {
		return r.Err
	}
	return err
}

// bringUp sends the peer this node's id, window and epoch until both sides have
// seen each other's epoch. run must be running already. A peer of another version is
// refused after it has seen enough to refuse this side as well.
func (p *Peer) bringUp(ctx context.Context) error {
	epoch := rand.Uint32N(Gone-1) + 1
	retry := time.NewTicker(RetryEvery)
	defer retry.Stop()
	var seen uint32
	var refused Refusal
	said := false // all that there is to say now
	for {
		if !said {
			p.dev.SetPeerSpad(spadID, uint32(p.node.id))
			p.dev.SetPeerSpad(spadWindow, uint32(len(p.in)>>10))
			p.dev.SetPeerSpad(spadEpoch, epoch)
			p.dev.SetPeerSpad(spadSeen, seen)
			p.dev.SetPeerSpad(spadMagic, Magic<<16|Version)
			p.dev.RingDoorbell(doorbellBit)
			said = true
		}

		if err := p.checkPeer(); err != ErrNotYet {
			if errors.Is(err, ErrVersion) {
				refused.Begin(err)
			} else if err != nil {
				return err
			}
			was := seen
			seen = p.dev.Spad(spadEpoch)
			said = said && seen == was
			if p.dev.Spad(spadSeen) == epoch && seen == was && seen != 0 {
				if refused.Err != nil {
					return refused.Err
				}
				break // and the peer can see that we have seen it
			}
			if was == 0 && seen != 0 {
				continue // once: a peer may change its epoch at each look
			}
		}
		select {
		case <-p.kick: // nothing is said for that alone: two sides would ring in turns
		case <-retry.C:
			said = said && p.Routed() // which has got it
		case <-refused.Over:
			return refused.Err
		case <-p.done:
			return refused.Or(p.Err())
		case <-ctx.Done():
			return refused.Or(fmt.Errorf("link: peer does not answer: %w", ctx.Err()))
		}
	}
	for number, s := range p.node.services {
		if s != nil {
			p.sessions[number] = s.Open(p)
		}
	}
	// This is under pollMu, so that either stop finds the sessions, or this code
	// finds that stop is done.
	p.pollMu.Lock()
	if p.stopped {
		p.closeSessions()
		p.pollMu.Unlock()
		return p.Err()
	}
	p.up.Store(true)
	p.pollMu.Unlock()
	// What was announced before up was set has rung already (pair S17). A peer that goes
	// on storing keeps the link's goroutine busy, not the caller.
	if p.settleSome() {
		go p.settle()
	}
	return nil
}

// ErrNotYet means that the other side has not written all its scratchpads. What it
// writes while the bridge is being set up vanishes, up to some word.
var ErrNotYet = errors.New("link: not all is there yet")

// checkPeer checks the peer's scratchpads.
func (p *Peer) checkPeer() error {
	word := p.dev.Spad(spadMagic)
	if word == 0 || word == Gone {
		return ErrNotYet
	}
	if word>>16 != Magic {
		return fmt.Errorf("%w: scratchpad 0 is %#x, not of this protocol", ErrProtocol, word)
	}
	if v := word & 0xffff; v != Version {
		return fmt.Errorf("%w: this side speaks %d, the peer %d", ErrVersion, Version, v)
	}
	id, window := p.dev.Spad(spadID), p.dev.Spad(spadWindow)
	if id == 0 || id == Gone {
		return ErrNotYet // the first word written; or the link is down
	}
	if int(window) != p.out.Len()>>10 {
		return fmt.Errorf("%w: peer says its window has %d KiB, the bridge says %d", ErrProtocol, window, p.out.Len()>>10)
	}
	if p.want != 0 && ID(id) != p.want {
		return fmt.Errorf("%w: peer says it is %v, but %v was expected", ErrProtocol, ID(id), p.want)
	}
	p.id = ID(id)
	return nil
}
