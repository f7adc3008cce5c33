// Package bench measures the whole table: every transport in every state that a
// server is in, beside what the machine allows. It also sweeps over message sizes
// for a picture.
//
// It stands above perf, which measures one test on one set of connections, and
// limits, which measures the machine. It knows no transport: cmd/sdp-perf passes
// functions that dial. A transport of another module is a separate program, a
// worker, which speaks the small protocol in remote.go. The directory benchmarks of
// this repository has one.
//
// In addition to what package perf does:
//
//   - A round measures everything once. For each row it measures every transport,
//     one after the other, and begins with another one in each round. Ratios are
//     computed within a round. The table has the median and the spread of 5.
//   - Each measurement opens connections of its own and closes them, so that none
//     is affected by another.
//   - The limits are measured in each round too. A share of a limit is relative to
//     the best of all rounds, which is the strictest.
//   - Shares of connections that make round trips at the same time are those of windows of a
//     second, whatever the time of a measurement: what is fair over a long time may starve a
//     connection meanwhile.
//   - Idle connections are measured once, by processes that have done nothing else
//     before.
//   - A measurement that fails is reported in its row, and the run goes on.
package bench
