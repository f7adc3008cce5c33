//go:build race

package sdp

// The race detector does not see shared mappings. Between nodes of one process the
// hand-over of heap memory of tunnels passes through them, so it would complain.
func init() { sharedBetweenNodes = false }
