// Package recorder is a device around a device, for tests, that checks each store
// against the wire protocol before it passes it on.
//
// A [Recorder] watches all bridges of a test, both ends of each, so that what one side
// grants is known when the other stores. It reads what the sides store, as sdp/PROTOCOL.md
// has it, and knows nothing of the packages that store it: bring-up, set-up frames with
// Hello, HelloAck and Refuse, lines, records, credit and grants; lanes and frames; and
// from the frames that a node sends, the stores of each tunnel, which are checked as
// those of a bridge are.
//
// What it reports, with the last stores of that connection:
//
//   - a store after STOPPED, or to a line or queue that was not granted;
//
//   - a store to a queue that was left by a move, but for records begun before it;
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
//     rec := recorder.New(t)
//     a, b := rec.Pair(ntbmem.Pair(1 << 20))
//
// It is not a model of time or of reading: that a side loads a word before it uses what
// the word says is not seen. Its lock orders stores that are not ordered otherwise, which
// may hide from the race detector what it looks for.
package recorder
