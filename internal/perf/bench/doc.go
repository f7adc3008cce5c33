// Package bench makes the whole table: every transport in every state that a
// server is in, beside what the machine allows, and a sweep over message sizes
// for a picture.
//
// It stands above perf, which measures one test on one set of connections, and
// limits, which measures the machine. It knows no transport: cmd/sdp-perf gives
// it functions that dial. A transport of another module is a program of its own,
// a worker, and speaks the small protocol in remote.go; benchmarks/ in this
// repository has one.
//
// How it measures, besides what package perf does:
//
//   - A round measures everything once: for each row, every transport one after
//     the other, beginning with another one in each round. Ratios are made within
//     a round; the table has the median and the spread of 5.
//   - Each measurement opens connections of its own and closes them, so that none
//     finds what another has left.
//   - The limits are measured in each round too. A share of a limit is that of
//     the best of all rounds, which is the strictest.
//   - Idle connections are measured once, by processes that have done nothing
//     else.
//   - A measurement that fails is reported in its row and the run goes on.
package bench
