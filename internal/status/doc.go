// Package status is what a process of a fabric serves about itself, as one JSON value, and what
// clients put together from several. Everything that shows a fabric reads it: ntbnet ls,
// doctor, topology and top, and programs that read their --json.
//
// It has types alone. Packages ring, internal/fabric and sdp fill them in, and internal/census
// checks what a process of another user served.
//
//	p := &status.Process{Process: 1, Links: []status.Link{{To: 2, State: "up"}}}
//	err := json.NewEncoder(w).Encode(p.ForOthers())
package status
