package proxy

import "fmt"

// Stats are the counters of a [Forwarder] since its start.
type Stats struct {
	// Open is the number of connections that are served now, including those whose
	// target is being dialled.
	Open int
	// Total is the number of connections that were accepted and not refused.
	Total int64
	// Refused is the number of connections closed at once because of the limit.
	Refused int64
	// Failed is the number of connections whose target could not be dialled.
	Failed int64
	// Aborted is the number of connections cut by an error, or because the proxy
	// ended.
	Aborted int64
	// ToTarget and FromTarget are the bytes passed on. Where neither side is
	// SDP, they are added when a direction ends.
	ToTarget, FromTarget int64
}

// String returns one line for people, with names before numbers: "open 1, total 3,
// refused 0, failed 0, aborted 0, bytes to target 10, from target 20".
func (s Stats) String() string {
	return fmt.Sprintf("open %d, total %d, refused %d, failed %d, aborted %d, bytes to target %d, from target %d",
		s.Open, s.Total, s.Refused, s.Failed, s.Aborted, s.ToTarget, s.FromTarget)
}

func (s *Stats) add(r *relay) {
	s.ToTarget += r.toTarget.bytes.Load()
	s.FromTarget += r.fromTarget.bytes.Load()
}

// Stats returns the counters. It may be called at any time, even after Close.
func (f *Forwarder) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.past
	s.Open = len(f.relays) + f.pending
	for r := range f.relays {
		s.add(r)
	}
	return s
}
