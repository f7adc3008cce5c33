package link

// Watch is a waiter here for words that a routed peer publishes. Everything that the
// peer stores passes through this process. So the waiter need not tell the peer, nor
// wait until the peer knows. A Watch is used for one wait at a time.
type Watch struct {
	// Wake is called after a word was published in one of the Lines. It must not
	// block, and may be called once more after Unwatch.
	Wake func()
	// Lines are 64-byte lines of Local, by number: offset / 64. They may be the same.
	Lines [2]int
}

// Watch begins to watch for w, which must not be watched for yet. A goroutine that
// checks the lines after it misses nothing: either what the peer publishes is there, or
// w is woken. The peer must be routed.
func (p *Peer) Watch(w *Watch) { p.frames.Watch(w, p.localLine()) }

// Unwatch ends the watch for w.
func (p *Peer) Unwatch(w *Watch) { p.frames.Unwatch(w, p.localLine()) }

// localLine returns the number of Local's first line in the window.
func (p *Peer) localLine() int { return (len(p.in) - len(p.local)) / 64 }
