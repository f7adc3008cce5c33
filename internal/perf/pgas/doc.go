// Package pgas measures operations of package shmem between two PEs: how long a put, a
// get, an atomic operation, or a barrier takes.
//
// It starts no processes and parses no command line. cmd/sdp-perf does both. Its
// counterpart in C, for another OpenSHMEM, is benchmarks/oshmem/perf.c, with the same
// loops, counts, buffers and checks, and items of the same names.
//
// Every PE of a job calls [Measure]. PE 0 measures. peer is the other PE, and further
// PEs only take part in barriers. While PE 0 works alone, all others wait in a
// barrier, as PEs do that wait for each other. For each item:
//
//	PE 0                    peer                   others
//	barrier                 barrier                barrier
//	batches of operations   barrier ...            barrier ...
//	barrier
//	checks                  checks
//
// or, if all PEs do it together, for each batch
//
//	puts the count n everywhere
//	barrier                 barrier                barrier
//	n operations            n operations           n operations
//	barrier                 barrier                barrier
//
// A batch takes at least a sixteenth of an item's time. The figure is the median of
// nine batches. The clock is read once for a batch.
//
// A [Report] has the samples of all rounds and makes the tables.
//
// Example, at each PE:
//
//	sample, err := pgas.Measure(ctx, w, 1, pgas.Keys(), 100*time.Millisecond)
package pgas
