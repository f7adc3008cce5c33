package ntb

import "github.com/ntbnet/ntbnet/internal/virtual"

// Fence is a full memory barrier. Where Caps.FenceToLook is set, it is needed
// between a Publish and the load of a word by which the peer may have answered.
func Fence() { fence() }

// Pause is a hint to the CPU that the caller spins on a word that another CPU writes.
func Pause() {
	if virtual.Poll != nil {
		virtual.Poll()
		return
	}
	pause()
}
