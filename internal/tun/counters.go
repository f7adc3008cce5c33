package tun

import "sync/atomic"

// counters are what is counted of a peer. They may be read at any time.
type counters struct {
	connects                atomic.Uint64
	txPackets, txBytes      atomic.Uint64
	rxPackets, rxBytes      atomic.Uint64
	overflows, late         atomic.Uint64 // of the queue
	down                    atomic.Uint64 // packets to a peer that is not there
	source, malformed, kern atomic.Uint64 // packets of the peer that were dropped
	refused                 atomic.Uint64 // connections
	queued                  atomic.Int64  // bytes
}
