package ring

import "github.com/ntbnet/ntbnet/ntb"

// Of two sides that each store a word and then look for the other's, one at least must
// see it. Here the one that works calls afterStore between the two, and the one that is
// about to sleep beforeLook. Where memory is shared both fence, which is cheaper than an
// Order for each sleep. Elsewhere Order does all by itself, unless the device says that it
// does not.

// afterStore comes between a publish and a look at whether the peer sleeps (pairs S5 to
// S7).
func afterStore(c *ntb.Caps) {
	if c.Coherent || c.FenceToLook {
		ntb.Fence()
	}
}

// beforeLook comes between saying that one is about to sleep and the last look (pairs S4
// to S7).
func beforeLook(dev ntb.Device, c *ntb.Caps) {
	if c.Coherent {
		ntb.Fence()
	} else {
		dev.Order()
	}
}
