package link

import "github.com/ntbnet/ntbnet/ntb"

// In a store–look pair, two sides each store a word and then look for the other's. At
// least one side must see the other's word. Here the side that works calls AfterStore
// between the two steps, and the side that is about to sleep calls BeforeLook. Where
// memory is shared both fence, which costs less than an Order for each sleep. Otherwise
// Order is enough, unless Caps.FenceToLook is set.

// AfterStore is called by the side that works, between a publish and the look whether the
// peer sleeps (pairs S6 and S7).
func AfterStore(c *ntb.Caps) {
	if c.Coherent || c.FenceToLook {
		ntb.Fence()
	}
}

// BeforeLook is called by a side that is about to sleep, between the store that announces
// it and the re-check (pairs S4, S6 and S7).
func BeforeLook(dev ntb.Device, c *ntb.Caps) {
	if c.Coherent {
		ntb.Fence()
	} else {
		dev.Order()
	}
}
