// Package plot writes a picture of lines over logarithmic axes as SVG, with only
// the standard library. It has no more than sdp-perf needs.
//
// Example:
//
//	err := plot.Write(w, "Title", plot.Chart{
//		Title: "round trip", X: "message, bytes", Y: "µs",
//		Lines: []plot.Line{{Name: "sdp", Points: []plot.Point{{64, 0.6}, {1024, 0.9}}}},
//	})
package plot
