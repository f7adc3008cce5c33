// Package perf measures and compares stream transports: how long a round trip takes, and how much
// one connection carries one way.
//
// It is not a transport and knows none. The caller passes a function that dials. It stands beside
// cmd/sdp-perf, which adds the transports, starts the second process and parses the command line.
//
// Two halves talk over the measured connections themselves:
//
//	Run (client)                               Server
//	command: hello, version    ─────────────►
//	                           ◄─────────────  reply: version
//	command: verify, n bytes   ─────────────►
//	n pseudo-random bytes      ◄────────────►  n pseudo-random bytes
//	                           ◄─────────────  reply: first bad byte
//	command: echo, n messages  ─────────────►
//	message                    ─────────────►
//	                           ◄─────────────  the same message, n times
//	command: sink, n messages  ─────────────►
//	n messages                 ─────────────►  counts bytes
//	                           ◄─────────────  reply: bytes received
//	command: memory, or CPU    ─────────────►
//	                           ◄─────────────  reply: what the process has used
//
// A [Group] is the client's side for callers that combine measurements differently. Package bench
// does so, with what package limits measures.
//
// Measures that make the figures reliable:
//
//   - Every byte is checked in a separate pass before anything is timed.
//   - The rounds are interleaved. Each round measures every transport for a short slice after a
//     warm-up, in an order that changes from round to round. So a disturbance of the machine
//     affects all of them. Ratios are computed within a round. The report has the median of the
//     rounds and the spread.
//   - A slice is a few batches. The clock is read once for a batch, not for a message. Only the
//     percentiles need a reading for each message. These batches do not count for the mean.
//   - One-way figures count what the receiver reports to have received, until its answer has
//     arrived.
//   - The timed loops do not allocate.
//
// Example:
//
//	srv := perf.NewServer()
//	go srv.Serve(ln)
//	defer srv.Close()
//	report, err := perf.Run(ctx, perf.Plan{
//		Targets:       []perf.Endpoint{{Network: "tcp", Address: ln.Addr().String()}},
//		RoundTripSize: 64,
//		Rounds:        5, Connections: 1, Duration: 300 * time.Millisecond,
//		Dial:          dial,
//	})
package perf
