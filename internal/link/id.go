package link

import "fmt"

// Version is the version of the window layout, the scratchpads and the set-up
// queue. Processes with different versions refuse each other.
const Version = 4

// ID identifies a process of a fabric: a host and a process of that host, both 0 to
// 65535. The zero ID is no process.
type ID uint32

// MakeID returns the id of a host's process.
func MakeID(host, process int) ID { return ID(uint32(host)<<16 | uint32(process)&0xffff) }

// Host returns the host's number.
func (id ID) Host() int { return int(id >> 16) }

// Process returns the number of the process on its host.
func (id ID) Process() int { return int(id & 0xffff) }

// String returns the form "node2.5": host 2, process 5.
func (id ID) String() string { return fmt.Sprintf("node%d.%d", id.Host(), id.Process()) }
