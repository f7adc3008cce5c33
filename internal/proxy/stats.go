package proxy

// Stats are the counters of a [Forwarder] since its start.
type Stats struct {
	// Open is the number of connections that are served now, including those whose
	// target is being dialled.
	Open int
	// Total is the number of connections that were accepted and neither refused nor checks.
	Total int64
	// Checks is the number of clients that connected and closed without a byte either way, as the checks of
	// another proxy do. Until it ends, such a client is in Open and Total.
	Checks int64
	// Refused is the number of clients that were turned away before a target was dialled.
	Refused int64
	// Failed is the number of connections of which no target could be reached.
	Failed int64
	// Aborted is the number of connections cut by a reset or another error, or by the proxy.
	Aborted int64
	// ToTarget and FromTarget are the bytes passed on. Where neither side is
	// SDP, they are added when a direction ends.
	ToTarget, FromTarget int64
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
