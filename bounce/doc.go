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
//	├ state                               what both sides have said of the end
//	└ control                             the words that the two sides store
//
// [Pool] and blocks divide the region, and granter asks them for queues. rx and tx are the
// two ends of a record queue, and know of nothing else.
//
// # The region
//
// Offsets from the beginning of the region ([link.Peer.Local]), all written by
// the peer; S is the number of slots.
//
//	0     64 S   control blocks: one per connection, by slot
//	....         queues, in blocks of 2 KiB to 16 MiB
//
// # A control block
//
// Each word has one writer at the peer, and is stored in one piece.
//
//	0   8  credit: generation of the queue<<32 | bytes consumed    by its reader
//	8   8  grant: where to go on writing, see grantWord             by its granter
//	16  4  data arm: changes when the reader is about to sleep      by its reader
//	20  4  space arm: changes when the writer is about to sleep;    by its writer
//	       the queue's generation in the high 8 bits
//	24  4  state: bits, see stateReadClosed and so on                by its Pair
//
// An arm word has a count above three low bits. Bit 0 asks for a fence between each
// publish and the look at that word. Bit 1 says that the word is an arm; without it
// the word takes one back. Bit 2, of a space arm, asks for a larger queue.
//
// # A record
//
// Records lie one behind the other from offset 0 of a queue, each a multiple of
// 64 bytes. A record's header is 8 bytes, published in one piece after the rest
// of the record:
//
//	0  4  sequence number: 1 for a connection's first record, then one more each
//	4  3  length of the payload
//	7  1  kind: inline data 1, bulk data 2, pad 3, FIN 4, move 5; with 0x80 more
//
// Inline data begins right behind the header, so that one cache line carries a short
// message and its validity. Bulk data begins 64 bytes behind it. The rest of a pad is
// skipped, and the record behind it is at offset 0. Behind a move, records go on at
// offset 0 of the queue that was granted next.
//
// Data with more belongs to the same Write as the data of the next record. A Read goes on with
// that as long as it has room and the writer goes on.
//
// The header behind a record is cleared before the record's own header is published.
// The reader checks one header only. So it finds there either zero or a new record,
// and never an old one or payload.
package bounce
