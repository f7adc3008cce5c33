// Package recorder is for tests. It wraps devices, and checks each store against the wire
// protocol before it passes it on.
//
// A [Recorder] watches all bridges of a test, both ends of each. So it knows what one side has
// granted when the other side stores. It interprets the stores as docs/protocol defines them,
// and knows nothing of the packages that make them. It knows bring-up, Hello, HelloAck and
// Refuse, control blocks, records, credit, grants, lanes and frames. From the frames that a node
// sends it derives the stores of each tunnel, which it checks like those of a bridge.
//
// It reports these violations, with the last stores of that connection:
//
//   - a store after STOPPED, or to a control block or queue that was not granted;
//
//   - a store to a queue that was left by a move, except for records begun before it;
//
//   - a record published twice, before its payload, before the next header was cleared,
//     beyond the room, or with a wrong sequence number; one behind a FIN;
//
//   - credit for what was not written; a grant before the last one was taken, of memory
//     that is in use or not cleared; a state bit taken back;
//
//   - a word of one writer that two store at the same time, or of another size;
//
//   - set-up frames and frames of lanes beyond credit or out of order; summary and
//     master words without what comes before them; words that nobody may store.
//
// A test wraps the two ends of each bridge:
//
//	rec := recorder.New(t)
//	a, b := rec.Pair(ntbmem.Pair(1 << 20))
//
// It does not model time or reading: it cannot see whether a side loads a word before it
// relies on it. Its lock orders stores that are not ordered otherwise, which may hide
// races from the race detector.
//
// # Stores of one side
//
// A [Tape] records the stores and flushes of a window, for tests that count them.
package recorder
