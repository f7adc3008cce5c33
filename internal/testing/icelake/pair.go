package icelake

import (
	"sync"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
)

// Pair is a pair of NTBs back to back. It implements pcimodel.Bridge.
type Pair struct {
	mu    sync.Mutex // guards all of both sides
	sides [2]*side
	cut   bool
}

// New returns a pair. Its windows, of BARs 2 and 4, have sizes that are powers of two, from 4 KiB to 1 GiB.
func New(window0, window1 uint32) *Pair {
	p := new(Pair)
	for i := range p.sides {
		p.sides[i] = &side{pair: p, number: i, windows: [2]uint32{window0, window1}, registers: newRegisters(i)}
	}
	return p
}

// Functions implements pcimodel.Bridge. The first is the upstream device (USD), which the kernel calls port 0.
func (p *Pair) Functions() [2]pcimodel.Function {
	return [2]pcimodel.Function{p.sides[0], p.sides[1]}
}

// Counts implements pcimodel.Bridge.
func (p *Pair) Counts() [2]pcimodel.Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return [2]pcimodel.Counts{p.sides[0].counts, p.sides[1].counts}
}

// Cut implements pcimodel.Bridge.
func (p *Pair) Cut() { p.setCut(true) }

// Mend implements pcimodel.Bridge.
func (p *Pair) Mend() { p.setCut(false) }

func (p *Pair) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.linkEvents()
}

// Deafen keeps changes of the link from a side's registers and interrupts, as when the peer resets so fast that the
// side's port misses it. With false, the side learns how the link is.
func (p *Pair) Deafen(number int, deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sides[number].deaf = deaf
	p.linkEvents()
}

// Strangers returns offsets of registers that drivers have used and the model does not have.
func (p *Pair) Strangers() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(p.sides[0].strangers, p.sides[1].strangers...)
}

// linked reports whether there is a link. The caller holds mu, as in what follows.
func (p *Pair) linked() bool {
	return !p.cut && p.sides[0].registers.wantsLink() && p.sides[1].registers.wantsLink()
}

// linkEvents has both sides learn how the link is.
func (p *Pair) linkEvents() {
	status := uint64(0)
	if p.linked() {
		status = linkUp << 16
	}
	for _, s := range p.sides {
		r := s.registers
		if s.deaf || r[regLinkControl]&linkStatusMask == status {
			continue
		}
		s.change(func() {
			r[regLinkControl] = r[regLinkControl]&^linkStatusMask | status
			r[regSlot] |= slotChanged
			r[regStatus] |= 1 << linkBit
		})
	}
}
