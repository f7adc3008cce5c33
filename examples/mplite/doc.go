// Package mplite passes messages between the PEs of a shmem.World, with the calls of MP_Lite over
// SHMEM: Send, ASend, Recv, ARecv, Wait, Test and Probe, tags, and any source. It uses puts and
// gets only. For collective operations use package shmem.
//
// A program calls Open on all PEs, and then:
//
//	err := mplite.Send(ctx, c, data, to, tag)                // MP_Send
//	send := mplite.ASend(c, data, to, tag)                   // MP_ASend
//	last, err := mplite.Recv(ctx, c, buf, from, tag)         // MP_Recv
//	recv := mplite.ARecv(c, buf, mplite.AnySource, tag)      // MP_ARecv, source -1
//	last, err = recv.Wait(ctx)                               // MP_Wait
//	done, err := send.Test()                                 // MP_Test
//	last, err = c.Probe(ctx, mplite.AnySource, mplite.AnyTag) // MP_Probe
//
// Buffers are slices of any type that symmetric memory may hold. MP_Lite keeps the source, tag and
// size of the last message in globals; here they are returned as a Last. Sizes are in bytes.
//
// # What is guaranteed
//
// Messages of one PE are not overtaken. If one receive may take either of two messages, it gets the
// one that was sent first. If two receives may take one message, the one that was called first gets
// it. A receive from any source serves the PEs that have messages in turn.
//
// Send may return before its message is received, if the message finds room in the send buffers.
// ASend never waits. So two PEs may both send before they receive, as long as their messages fit
// into Options.Buffer and number no more than Options.Slots in a queue. A program that must not
// rely on room calls ASend, receives, and then waits for the send.
//
// A PE does its part only in calls to this package. While it computes, or waits in a barrier of
// package shmem, it puts no data into receives. What it has left in its send buffers can be
// received meanwhile. A message begun with ASend that is not yet out of its buffer goes on in the
// next call that waits or tests.
//
// Calls that wait sleep when nothing comes. They return an error when a PE ends without Close. One
// goroutine at a time may use a Comm.
//
// # How a message goes
//
// For each ordered pair of PEs there are two queues. The sender writes headers of 24 bytes to the
// send queue, in the receiver's heap. The receiver writes to the receive queue, in the sender's
// heap. Four words for each pair count what was written and what was taken. Each word is written by
// one PE, in the heap of the other, after what it counts.
//
//	             who sends                              who receives
//	posted                       <── post ───────────   receive into symmetric memory
//	               data put ═══════════════════════>    straight in place
//	                              ── done ──────────>
//	small                         ── small, data ───>   up to 8 bytes, in the header
//	buffered       send buffer    ── buffered ──────>
//	               <═══════════════════════ data got    by the receiver
//	                             <── pulled ────────
//	announced                     ── announced ─────>   no room in the send buffers
//	                             <── grant ─────────    when there is a receive
//	               data put ═══════════════════════>    in place, or in landing pieces
//	                              ── piece ─────────>
//
// A receive from one PE into symmetric memory, called before its message has come, is posted: the
// sender puts the data straight there. A receive into other memory, or from any source, is not
// posted. Neither is one while an earlier one that is not posted may take the same messages.
//
// The receive queue has twice as many slots as the send queue. Half of them are kept for replies to
// messages that have met a posted receive on their way. There are never more such replies unread
// than slots in the send queue. So a header can always be taken, whatever the other PE does, and no
// two PEs wait for each other's queues.
//
// # The gap
//
// A sender checks for a posted receive, and its header becomes visible later. In the time between,
// the receiver may post one:
//
//	who sends                          who receives
//	looks: nothing is posted
//	                                   looks: no header has come
//	                                   posts receive r
//	copies message 1, writes its header
//	sees r; message 2 has the same tag
//	puts message 2 into r              wrong: r is for message 1
//	                                   takes header 1: it is for r as well
//
// Now message 2 has overtaken message 1, or its data replaces that of message 1 while the program
// reads it, or is lost. So there are two rules.
//
// The receiver decides. A message whose header meets a posted receive is for that receive, which
// gets the data as if it had not been posted. The reply says by a negative size that the receive is
// withdrawn.
//
// The sender may use a posted receive only under a condition. No message that went without a
// posted receive, and that this receive takes as well, may still be in its send queue. A message
// that was taken from there is harmless. Either it met a receive, which is withdrawn by now,
// because the reply is written before the count of taken messages. Or it is not for any receive
// that is posted. If the rule forbids a receive, the message goes as if there were none. Stats
// counts both cases: Gap, and Ignored.
package mplite
