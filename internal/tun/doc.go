// Package tun carries IP packets between the nodes of a fabric, so that programs which know only
// the kernel's sockets run between them. It does the work of cmd/sdp-tun.
//
//	program ─► kernel ─► TUN of a peer ─► sender ─► SDP ─► receiver ─► TUN ─► kernel ─► program
//	                                      Queue            checks
//
// Each node has a TUN device for each other node, a peer, and one connection to it. What the kernel
// hands over is a virtio header and a packet, which may be a batch of segments, or lack its checksum. Both cross unchanged,
// and the kernel of the peer takes them as they are.
//
// It is not a VPN: nothing is encrypted. It does not route: the kernel does.
//
// # Frames
//
// Each side begins with a hello. Frames follow, all words little-endian:
//
//	0   length of what follows, 4 bytes; 0 in a heartbeat, of which nothing follows, and
//	    which the side that accepted the connection answers
//	4   virtio header, 10 bytes
//	14  packet
//
// Whatever a peer sends is checked: the length, the virtio header beside the packet, and that the source of
// the packet is one of the peer's prefixes.
//
// # Queue
//
// While the peer takes what comes, the kernel writes each packet into memory that [sdp.Conn.Reserve] lends.
// Otherwise packets wait in a [Queue], which has a limit in bytes and a flow of its own for each connection.
package tun
