// Package limits measures what a machine allows processes that share memory, without
// the code of a connection: between two of them one cache line to and fro, and two plain
// copies through a shared queue; along a chain of processes one word and back, and pieces of
// data that each process copies on.
//
// Package bench compares the transports with it. It knows none of them. Of this
// module it uses the store and load instructions of ntb, since no other publish is
// cheaper, and the table of perf.
//
// Two processes map one sealed memory file:
//
//	0        ping   the meter's word, on a line of its own
//	1024     pong   the helper's word
//	2048     head   bytes produced, stored by the meter
//	3072     tail   bytes consumed, stored by the helper
//	4096     queue  8 MiB
//
// A [Meter] in one process writes a line of text for each measurement. [Serve] in
// the other process reads it, and then both spin. Between two measurements the
// helper sleeps in its read.
//
// A [Chain] is measured by its first process; the others run [ServeChain]. They want no two
// processors: each one that waits yields its own after each poll, for a while, and then
// sleeps by futex(2). So an idle chain uses no processor. A page of the chain's memory
// belongs to each process:
//
//	0        a word for the next process
//	512      pieces stored for the next process
//	1024     a word for the one before
//	1536     pieces taken from the one before
//	2048     1 while the process sleeps
//	3072     calls of sched_yield
//
// Behind the pages follow the queues of pieces, of 2 MiB, one for each process but the last.
//
// In a cache line with payload, the word is the last 8 bytes and the payload the
// 56 bytes before it. In a message of two cache lines, 72 bytes, the word comes first and
// 64 bytes follow it, as in a record of the transport.
//
// Example, with one end of a pipe in each process:
//
//	mem, file, err := limits.NewMemory()       // file goes to the other process
//	s := limits.NewMeter(mem, commands)
//	report, err := s.Measure(limits.Full)
package limits
