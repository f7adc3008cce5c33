// Package tunnel is a reliable path of frames to one process that is not at the other end of a cable.
// It knows nothing of links, and of routes only what [Router] has: the lane with which one begins.
//
// A [Tunnel] has four parts. [arq.End] is its handshake and its sender. The inbound part is what the
// other end stores here, and takes each frame once, in order ([arq.Receiver]). The next hop is the
// lane that its frames take. The methods of link.Frames put these together.
//
// Its outbound window is an [ntb.Sink]. Stores are gathered in an open frame that is sent at
// the next Publish, so a small message is one frame. All frames of a tunnel are in sequence.
//
// The source keeps frames until they are acknowledged ([Config]). No store waits for
// room there, since the caller may hold locks that others need. Data asks for room first
// ([link.Frames]). While the retention is full, or 16 frames wait for the lane, data waits
// for its [link.Turn], where its deadline counts. Otherwise what is stored next, such as the peer's
// credit, would be late by all that waits. Some room is left for words. Words that find no room
// are kept aside and follow in their order. Of a word of which only the latest value counts, only
// that value is kept. Data comes behind them. If more is kept aside than any honest peer could
// cause, the tunnel ends.
//
// Everything that the other end stores passes through this process. So its arrival wakes the waiter
// ([link.Watch]), which need not publish an arm first. Notifications always wake.
//
// What is published is sent, but has not arrived: it is in this process' memory or on the way. A
// caller that must know calls Arrived.
//
// When the route changes, everything that is kept is sent again by the new one, as it is when no
// acknowledgement comes. Late frames of the old route are duplicates.
//
// The states of a tunnel are those of [arq.State]. The path is down in draining, when it was
// disabled here, and in ended, until Close. It is closed in lingering, for 30 s at most, and in closed.
package tunnel
