// Package ntbfixed makes sessions over memory that stays the same for ever, as a PCI function
// has it: a window of shared memory behind ivshmem, or a bridge's memory window. It is what
// backends for such functions share. It does not find functions, and maps nothing but what it
// is given.
//
// [Attach] is given both sides' memory, and how to interrupt the peer and to wait for its
// interrupts.
//
// # Memory
//
// Each side's memory begins with a header page, and the rest is its inbound window. Both are
// written by the peer and read by their owner. So scratchpads and doorbells need no registers: one
// interrupt is enough, and which doorbell it stands for is found in the page. Where there are more
// interrupts, each has a goroutine, and any of them means all doorbells. The page also has epochs,
// by which sessions are distinguished, and a heartbeat, because a bridge's link stays up when a
// process dies.
//
// # Sessions
//
// The memory outlasts a session, and a program may go on storing through the device of an old
// one. So each session maps the memory at addresses of its own. When it ends, its outbound
// addresses are given scratch memory, and its inbound ones a private copy. After that, and
// only then, the next session publishes its epoch. A side clears its memory before it answers the
// peer's epoch. So nothing of an old session reaches a new one.
//
// Two processes may have been given the same end. Only what each stores shows it to the other. So
// before a side stores anything, and while it waits for the peer, it looks at the words of its own
// end in the peer's page. If a session is there that has not ended, the side looks at its heartbeat
// for as long as [Silence] says. If that goes on, Open fails with [ntb.ErrInUse]. So an end whose process was
// killed is free after that time, or at once where Former knows.
//
// A side that is Sole leaves that out, and so reads across the bridge in Order alone.
//
// The two sides may be given different amounts of memory. What both can use is the window of a session.
//
// Where the memory itself can become another one's, as that of a link that is cut and mended, [Reattach]
// attaches again. Its Open goes on until there is a session.
//
// A process that is stopped, or gets no processor, keeps its link where the peer knows that it has not ended: from
// a server, or by a lock. Elsewhere it loses it after [Silence] without a heartbeat.
//
// # Interrupts
//
// A side that takes interrupts writes its id into the peer's page, and the peer passes it to its
// own way to interrupt. A side that takes none looks at the doorbell words instead. It looks 20 µs
// after it found one rung or rang one, and less often the longer ago that is: after a millisecond where that is 64 ms, and each
// 10 ms in the end. So does a side that takes interrupts, while the session's
// peer cannot interrupt it.
//
// There is no Reclaim, because memory that an IOMMU has pinned cannot be given back.
package ntbfixed
