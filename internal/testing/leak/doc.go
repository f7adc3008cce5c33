// Package leak fails a test that leaves something behind: goroutines and, on Linux,
// file descriptors and shared mappings (memfd and others). Only tests import it.
//
//	func TestDial(t *testing.T) {
//		leak.Check(t) // first, so that it checks last
//		...
//	}
//
// It checks the whole process. So the test must not call t.Parallel, nor run beside
// tests that do.
package leak
