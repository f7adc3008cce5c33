// Package ntbtest is the conformance suite of bridges. Each promise that package
// ntb makes about a device is a subtest that every backend must pass. The suite is
// not a load or speed test: a wait has a limit that only makes it fail, and no
// timing is asserted. Only tests import it.
//
//	func TestConformance(t *testing.T) {
//		ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) {
//			return ntbmem.Pair(1 << 16)
//		})
//	}
//
// The suite is clean under the race detector if the device's memory is. It reads
// what the peer published with [ntb.Load64], and other stores only after that.
package ntbtest
