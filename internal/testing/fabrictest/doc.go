// Package fabrictest gives tests fabrics of their own, which leave nothing behind.
// Only tests import it.
//
//	func TestDial(t *testing.T) {
//		h, err := sdp.Open("shm:" + fabrictest.Name(t))
//		...
//	}
//
// Names differ between processes and runs. So runs at the same time do not meet,
// nor what killed ones have left.
package fabrictest
