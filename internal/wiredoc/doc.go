// Package wiredoc reads the tables of sdp/PROTOCOL.md. Only tests import it: they compare
// the layouts and numbers there with those of the code.
//
//	for _, row := range wiredoc.Table(t, "Frames", "offset") {
//		offset, size := row.Number(t, "offset"), row.Number(t, "bytes")
//		...
//	}
package wiredoc
