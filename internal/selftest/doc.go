// Package selftest tests a wire between two hosts, with a program at both ends. It tests the order
// of stores on which the transport relies, whether stores leave at once, their speed, doorbells,
// and a link that goes down. It is the work of "ntbnet selftest".
//
// It uses an [ntb.Attachment] alone, and none of the transport above it. It does not look for ends
// of wires, and measures no connections.
//
//	report, err := selftest.Run(ctx, attachment, selftest.Options{Time: 3 * time.Second})
//
// # Two sides
//
// Both sides run the same phases in lock step. At the end of each they meet: a side publishes the
// number of its step, and waits for the peer's. The side whose random number is lower is the first
// one where they take turns. All words are in the first 512 bytes of the window:
//
//	  0  hello: "NTBT", and the version     128  a round of the phase
//	  8  random number                      192  the last round that was checked
//	 16  milliseconds of a phase            256  the round behind the last one
//	 64  step                               320  verdict: 1 no fault, 2 faults
//	512  payload, up to 64 KiB
//
// The words from 128 on have the low 24 bits of the step in front, so that none of an earlier phase
// counts. Payload follows from the random number of the side that stores it, and the round. What the
// peer stores is compared with what it must be, and nothing else depends on it.
//
// # Faults
//
// A check that fails does not end the test. A side that waits for what may never come goes on after
// Options.Late. Without the link, or with a peer that breaks the protocol, the test ends with an error.
package selftest
