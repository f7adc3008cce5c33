package hops

import "github.com/ntbnet/ntbnet/internal/perf"

// Report is the result of Run. It is printed by Table or as JSON. Times are in
// microseconds; GB/s are 10^9 bytes.
type Report struct {
	Host    perf.Host `json:"host"`
	Rounds  int       `json:"rounds"`        // planned
	Cut     string    `json:"cut,omitempty"` // what was left out for lack of time
	SliceMS float64   `json:"slice_ms"`
	// Work is the work of forwarding 64 B and 64 KiB.
	Work []Work `json:"work"`
	// Chains are the chains of processes: for each number of hops one row of each kind.
	Chains []*ChainRow `json:"chains,omitempty"`
	// Yield is the CPU time of one sched_yield in each round of the chains, in microseconds.
	Yield []float64 `json:"sched_yield_us,omitempty"`
	// NotCounted says why system calls were not counted, if they were not.
	NotCounted string `json:"calls_not_counted,omitempty"`
	// Rows are the matrix. The first row is between neighbours by stores, for
	// comparison.
	Rows []Row `json:"rows,omitempty"`
	// Shares are how a link is shared.
	Shares []Share `json:"shares,omitempty"`
}

// Row is one ring and one number of hops.
type Row struct {
	Nodes int `json:"nodes"`
	Lanes int `json:"lanes"`
	Hops  int `json:"hops"`
	// Frames is false for neighbours that use stores.
	Frames   bool `json:"frames"`
	Alone    Pair `json:"alone"`
	Together All  `json:"together"`
}

// Pair is what one pair of nodes achieves while the others only forward.
type Pair struct {
	P50        float64 `json:"round_trip_p50_us"` // of 64 B
	P99        float64 `json:"round_trip_p99_us"`
	Throughput float64 `json:"one_way_gbps"` // of 64 KiB
	// Frame is the CPU time of forwarding one frame in the test with 64 B. Data is
	// that of forwarding 64 KiB in the test with 64 KiB. Both are zero over one
	// hop.
	Frame float64 `json:"cpu_of_a_frame_us,omitempty"`
	Data  float64 `json:"cpu_of_64KiB_us,omitempty"`
}

// All is what all pairs achieve when they work at the same time.
type All struct {
	P50        float64 `json:"round_trip_p50_us"` // of the median node
	P99        float64 `json:"round_trip_p99_us"` // of the worst node
	Throughput float64 `json:"one_way_gbps"`      // of all together
	// Slowest is the rate of the slowest pair as a fraction of the fair share.
	Slowest float64 `json:"slowest_of_fair_share"`
}

// Share is how the link from node 2 to node 3 is shared when node 2 sends as much
// as it can to node 3, and node 1 does so through node 2.
type Share struct {
	// OwnSize and ForwardedSize are the sizes of the messages of node 2 and node 1,
	// in bytes.
	OwnSize       int `json:"own_message_bytes"`
	ForwardedSize int `json:"forwarded_message_bytes"`
	// Own is node 2's fraction of the bytes of the link. The rest is forwarded.
	Own perf.Spread `json:"own"`
	// Throughput is that of both together, in GB/s.
	Throughput float64 `json:"gbps"`
}

// Work is the CPU time of forwarding a frame at a busy node, where no goroutine
// sleeps and is woken, and that of a plain copy of the same bytes.
type Work struct {
	Size    int         `json:"bytes"`
	Forward perf.Spread `json:"forward_us"`
	Copy    perf.Spread `json:"plain_copy_us"`
}

// copy returns the time of a plain copy of 64 KiB, in microseconds.
func (r *Report) copy() float64 { return r.Work[len(r.Work)-1].Copy.Median }
