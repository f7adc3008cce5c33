package proxy

import "fmt"

// What a proxy takes at most, in bytes. TestProxyKeepsToItsMemory fills that.
const (
	ownMemory  = 16 << 20   // without a connection
	connMemory = 1280 << 10 // a connection: most of it is the buffer of SDP, which fills if its target does not read
)

// MostConnections returns the max-connections by which a proxy of these maps keeps to so many bytes of memory, if all maps have
// the same. What the kernel holds for sockets comes on top, and is less where memory is scarce.
func (c *Config) MostConnections(memory int) (int, error) {
	maps := max(1, len(c.Maps))
	most := (memory - ownMemory) / connMemory / maps
	if most < 1 {
		return 0, fmt.Errorf("%d bytes of memory are too little for %d maps: want at least %d MiB", memory, maps, (ownMemory+maps*connMemory+1<<20-1)>>20)
	}
	return most, nil
}
