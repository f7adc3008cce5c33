package epf

import "math/bits"

// outbound is the outbound address space of a controller, through which its machine's memory is reached. It is
// what the BARs of the other side, from barDoorbells on, are mapped to.
type outbound struct {
	regions [regions]region // the first is the firmware's, for interrupts
	made    uint64          // regions
}

// region maps some of that address space to addresses of the machine.
type region struct {
	space, machine uint64
	bits           int    // that an address passes as they are; 0 if the region is free
	number         uint64 // of regions made before it, and it
}

// space returns where in outbound space an offset in one of the other side's BARs is.
func space(bar int, offset uint64) uint64 { return uint64(bar)<<32 | offset }

// add takes the first free region (cdns_pcie_ep_map_addr). It reports whether there is one. What the controller does with
// a size of 0 is not defined; the model takes none.
func (o *outbound) add(space, machine, size uint64) bool {
	if size == 0 {
		return false
	}
	for i := 1; i < len(o.regions); i++ {
		if r := &o.regions[i]; r.bits == 0 {
			o.made++
			*r = region{space, machine &^ (alignment - 1), max(minRegion, bits.Len64(size-1)), o.made}
			return true
		}
	}
	return false
}

// remove frees the first region that begins somewhere (cdns_pcie_ep_unmap_addr), which after a reset of the machine need not
// be the newest.
func (o *outbound) remove(space uint64) {
	for i := range o.regions {
		if r := &o.regions[i]; r.bits != 0 && r.space == space {
			*r = region{}
			return
		}
	}
}

// find returns the machine's address that an access is to, by the newest of the regions that have it.
func (o *outbound) find(space uint64, size int) (address uint64, ok bool) {
	var newest *region
	for i := range o.regions {
		if r := &o.regions[i]; r.has(space, size) && (newest == nil || r.number > newest.number) {
			newest = r
		}
	}
	if newest == nil {
		return 0, false
	}
	low := uint64(1)<<newest.bits - 1
	return newest.machine&^low | space&low, true
}

func (r *region) has(space uint64, size int) bool {
	return r.bits != 0 && space>>r.bits == r.space>>r.bits && (space+uint64(size)-1)>>r.bits == r.space>>r.bits
}
