// Package bounce is a part of package sdp, which programs import: the data path of a connection.
// There is a bounce buffer in each direction, and in it a queue of records. The package also
// has how the two endpoints wait for each other.
//
// It is not a net.Conn. It knows no addresses and no ports, and its errors are plain.
// Package sdp wraps it.
//
// A [Pool] divides the memory that one peer may write among the connections with that
// peer. A [Pair] is one endpoint of one connection: the queue that it reads, in its
// own memory, and the queue that it writes, in the peer's memory.
//
//	this process                               the peer
//	Pair.Read ◄── rx queue ◄─────── stores ─── Pair.Write
//	Pair.Write ── stores ───────► rx queue ──► Pair.Read
//	  control  ◄── credit, grants, arms, state ── control
//
// # The parts
//
// The parts of a Pair know of those below them in the tree, and of control and state. There
// are two exceptions: the reader starts what dmaTx has staged, and dmaTx rings the bell.
// A half, which is the reader or the writer, has its own lock, waiter and arm word. A reset or
// a bad word of the peer concerns both halves: the half returns it as an error, and the Pair
// acts on it.
//
//	Pair      identity, and what Close does
//	├ reader      waiter, rx, granter     what is read, and credit
//	├ writer      waiter, sender, bell    what is written
//	│             sender: tx, dmaTx       by stores or by a DMA engine
//	├ state                               what both sides have said of closing
//	└ control                             the words that the two sides store
//
// [Pool] and blocks divide the region, and granter asks them for queues. rx and tx are the
// two ends of a record queue, and know of nothing else.
//
// docs/protocol/stream.md has the layout of the region: control blocks, queues and records.
package bounce
