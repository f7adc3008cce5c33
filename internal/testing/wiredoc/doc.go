// Package wiredoc reads the tables and the examples of the protocol's pages, which are sdp/PROTOCOL.md
// and docs/protocol. Only tests import it: they compare the layouts and numbers there with those of the
// code.
//
//	for _, row := range wiredoc.Table(t, "Frames", "offset") {
//		offset, size := row.Number(t, "offset"), row.Number(t, "bytes")
//		...
//	}
//	values, wire := wiredoc.Vector(t, "Refuse")
package wiredoc
