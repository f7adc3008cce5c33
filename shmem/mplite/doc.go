// Package mplite passes messages between the PEs of a shmem.World, with the calls of
// MP_Lite over SHMEM: Send, ASend, Recv, ARecv, Wait, Test and Probe, tags, and any
// source. It is made of puts and gets alone. Collective operations are those of
// package shmem.
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
// Buffers are slices of any type that symmetric memory may hold. What MP_Lite keeps in
// globals, the source, tag and size of the last message, is returned as a Last. Sizes
// are in bytes.
//
// # What is guaranteed
//
// Messages of one PE are not overtaken: of two that one receive may take, it gets the
// one sent first; and of two receives that may take one message, the one called first
// gets it. Any source serves those who have messages in turn.
//
// Send may return before its message is received, if that finds room in the send
// buffers, and ASend never waits. So two PEs may both send before they receive as long
// as what is under way fits into Options.Buffer, and there are no more messages than
// Options.Slots in a queue; a program that needs to know calls ASend, receives, and
// then waits for the send, which needs no room at all.
//
// A PE does its part only in calls to this package: one that computes, or waits in a
// barrier of package shmem, does not put data into receives. What it has left in its
// send buffers can be received meanwhile. A message begun with ASend that is not yet
// out of its buffer goes on in the next call that waits or tests.
//
// Calls that wait sleep when nothing comes, and return an error when a PE ends without
// Close. One goroutine at a time may use a Comm.
//
// # How a message goes
//
// For each ordered pair of PEs there are two queues. The sender writes headers of 24
// bytes to the send queue, in the receiver's heap; the receiver writes to the receive
// queue, in the sender's. Four words for each pair count what was written and what was
// taken; each is written by one PE, in the heap of the other, after what it counts.
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
// A receive from one PE into symmetric memory, called before its message has come, is
// posted: the sender puts the data straight there. A receive into other memory, or
// from any source, is not. Nor is one while an earlier one that is not posted may take
// the same messages.
//
// Of the slots of the receive queue, twice as many, half are kept for messages that
// have met a posted receive on their way. There are never more of those that the
// sender has not heard of than slots in the send queue, so a header can always be
// taken, whatever the other PE does, and no two PEs wait for each other's queues.
//
// # The gap
//
// Between the moment when a sender looks for a posted receive and the moment when its
// header can be seen, the receiver may post one:
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
// Now message 2 has overtaken message 1, or its data replaces that of message 1 while
// the program reads it, or is lost. So there are two rules. The receiver decides: a
// message whose header meets a receive that was posted is for that receive, which gets
// the data as if it had not been posted, and the reply says by a negative size that it
// is withdrawn. And the sender uses a posted receive for a message only if none of its
// messages that went without one, and whose tags it takes, is still in the send queue.
// What was taken from there has either met a receive that is withdrawn by now, since
// the reply is written before the count of what was taken; or it is not for any that
// is posted. If the rule forbids a receive, the message goes as if there were none.
// Stats counts both: Gap, and Ignored.
package mplite
