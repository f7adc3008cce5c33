package fabric

import "github.com/ntbnet/ntbnet/internal/hostdir"

// HandoverTime is how long a dial waits, at most, for the next holder of a port that was handed over.
const HandoverTime = hostdir.HandoverTime

// Handover releases a port for another process of this host, which is about to claim it.
func (f *Fabric) Handover(port int) { f.net.station.handover(port) }

// HandedOver reports whether a process of this host has handed a port over less than HandoverTime ago, so
// that a dial waits for the next one. holder is a user who is known to have held the port, or -1; see
// hostdir.Dir.HandedOver.
func (f *Fabric) HandedOver(port, holder int) bool { return f.net.station.handedOver(port, holder) }
