package proxy

import (
	"fmt"
	"slices"
)

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

// ownDescriptors is how many descriptors a proxy has for other things than connections, with those of its metrics.
const ownDescriptors = 64

// descriptors returns how many descriptors this process has when all maps have max-connections, but for those without a
// limit. A connection by SDP has none of its own.
func (c *Config) descriptors() int {
	n := ownDescriptors
	for i := range c.Maps {
		m := &c.Maps[i]
		each := 0
		if m.Listen.Network != networkSDP {
			each++
		}
		if m.Transparent || slices.ContainsFunc(m.Targets, func(e Endpoint) bool { return e.Network != networkSDP }) {
			each++
		}
		n += m.MaxConnections * each
	}
	return n
}

// TooManyConnections returns a warning if max-connections is more than this process can have descriptors for, else "".
func (c *Config) TooManyConnections() string {
	needs, limit := c.descriptors(), descriptorLimit()
	if needs <= limit {
		return ""
	}
	return fmt.Sprintf("the maps' max-connections take %d descriptors, and the limit is %d: raise it (LimitNOFILE= of systemd, ulimit -n), or lower max-connections", needs, limit)
}
