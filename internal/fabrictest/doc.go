// Package fabrictest gives tests fabrics of their own, which leave nothing behind.
// Only tests import it.
//
//	func TestDial(t *testing.T) {
//		h, err := sdp.Open("shm:" + fabrictest.Name(t))
//		...
//	}
//
// A name is another one in each process and run, so that runs at the same time, and
// what killed ones have left, do not meet.
package fabrictest
