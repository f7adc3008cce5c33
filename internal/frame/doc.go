// Package frame has the header of the frames that lanes carry, which tunnels and routes read too,
// and counts frames that are dropped. docs/protocol/hops.md has the layout. All numbers are little endian.
//
// The first 8 bytes of a frame are published last. No payload is ever stored there, so the hop
// number shows whether a frame is from an earlier lap. They are never zero nor all ones.
//
// The slots that frames lie in are package ring's. Bodies of data are package tunnel's.
package frame
