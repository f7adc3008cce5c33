// Package arq makes one ordered stream of frames out of a way on which frames are lost,
// repeated, and overtake each other. It is step functions. What to send, what a frame
// means, and when to act next follow from the state, the frame and the caller's time.
//
// It has no clock, no goroutine and no lock. Its only memory is that of the frames that it
// keeps. It knows nothing of lanes, links and ways: where a frame goes is the caller's.
//
// An [End] is one end of a stream: the handshake, the sender, and what is acknowledged to
// the other end. A [Receiver] decides which frames are taken. It is apart from its End, since
// a caller stores what a frame carries under one lock, and sends under another.
//
//	for f, ok := end.Next(now); ok; f, ok = end.Next(now) {
//		if !lane.Put(f) {
//			break // the same frame is next when there is room
//		}
//		end.Sent(&f, now)
//	}
//	wake(end.Deadline()) // and call Expire then
//
// # The stream
//
// Frames of data and the close that ends them carry sequence numbers, from 1 on, modulo
// 2^32. The receiver takes the next number only. The sender keeps what is not acknowledged
// in its retransmit queue. All of it is sent again when nothing was acknowledged for a
// timeout, and when the way changes. Every frame but open and accept acknowledges what was
// taken. A frame of its own does so when much is owed, after 5 ms, and when a frame came
// again: then the acknowledgement was lost.
//
// # The states
//
//	state      sends                            until
//	Opening    open, every 50 ms                accept comes: Up
//	Up         what is stored                   Disable: Draining; Close: Lingering
//	Draining   what is kept, and then close     close is acknowledged: Ended
//	Lingering  the same                         close is acknowledged, or 30 s pass: Closed
//	Ended      acknowledgements that are due    Close: Closed
//	Closed     acknowledgements that are due
//
// The end that was asked is Up from the beginning. It sends accept before all else, and again
// before frames that it sends again, until something arrives from the other end. What
// overtakes accept is lost there. In Opening nothing has been sent that must be taken back, so
// Disable and Close end it at once. A close of the other end, a reset, and whatever else the
// caller finds wrong end every state.
package arq
