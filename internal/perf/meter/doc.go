// Package meter measures stream transports: one way, round trips, round trips at a set rate, the making
// of connections, and what idle ones cost.
//
// A [Server] and [Run], its client, talk over a control connection, by lines of JSON. Each run has data
// connections of its own. Both begin with a preamble that names the run; see wire.go.
//
//	client                                server
//	preamble, Params            ──────►   checks them
//	                            ◄──────   ready
//	a preamble on each stream   ──────►   attaches it
//	                            ◄──────   a byte on that stream
//	run                         ──────►   both begin
//	data                        ◄─────►   data
//	stop                        ──────►   ends its streams
//	                            ◄──────   its Side
//
// One side or both send until the time is over or the amount is sent, and half-close; the other side
// reads to the end. So each side knows what it has sent and received, and what either of them measured is
// known when the other one is lost.
//
// [Verify] checks each byte of a pseudo-random stream both ways. Answers of round trips are checked too.
// Times are kept as HdrHistogram keeps them. The loops that are timed do not allocate.
//
// The transports are here too ([Target], [Listen]), but no command line and no report: package report
// prints.
package meter
