// Package collective is the engine of collective operations on untyped symmetric memory: barrier,
// broadcast, gather, all-to-all, reduction, and the exchange of a few words. PEs of a team step to
// each other and send messages, in a work area that each has in its heap; see steps.go.
//
// It does not know of types, arguments of callers, or how teams come to be. That is internal/job.
//
//	t := collective.New(space, pes, me, area, layout)
//	err := t.Begin()                                   // one collective at a time
//	err = t.Leave(t.Reduce(ctx, dst, src, n, 8, fold)) // n elements at offset src of each PE
//
// Sets makes teams without agreement between their PEs, as programs in C want it.
//
// # How they become writes
//
// "Small" is what fits into a message of 48 bytes. Where all PEs of a team are on one host, with
// their memory mapped to each other, large data is read from there, by all at once. Otherwise
// nothing is read from another PE, because reading over a bridge is slow. Data is put instead. If
// hosts form a ring or a line, it is put to a neighbour as far as that helps.
//
//	                 small            large, one host       large, several hosts or Strict
//	Broadcast        message to each  each gets             pipeline, ring: two chains of
//	                 (9 PEs or more:                        neighbours, else binomial tree
//	                 binomial tree)
//	Gather           message to each  each gets from each   ring: N-1 rounds between
//	                                                        neighbours, else put to each
//	AlltoAll         message to each  each gets from each   put to each
//	Reduce           message to each  each gets its part    each puts parts to those that
//	                                  of all, combines it,  combine them, and these the
//	                                  puts it to all        result to all
//
// In a barrier each PE steps to each other, in teams of 9 or more in rounds. Where not all are mapped
// to each other, the first PE of each host does that for the PEs of its host.
//
// Whichever way is taken, a reduction combines PE 0's elements with PE 1's, then with PE 2's, and
// so on. So results do not depend on it.
//
// # When memory may be used
//
// A call returns when dst here is complete and src may be used again. Other PEs may still be in it.
// Others do not touch a PE's dst or src before it has called, or after it has returned. dst is
// written by its own PE. Another one may write it when a step of that PE has said so. It is
// complete when all writers have taken a step that says "it is written". A src that others read is
// free when all have taken a step that says "it was read". So calls may follow each other at once,
// with any roots, and with teams that have PEs in common. They must not use the same objects at the
// same time.
package collective
