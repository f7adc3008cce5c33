package ntb

// Fence is a full memory barrier. It is needed between a Publish and a look for
// the peer's answer where Caps.FenceToLook says so.
func Fence() { fence() }

// Pause tells the CPU that the caller spins on a word that another CPU writes.
func Pause() { pause() }
