package hops

import "github.com/ntbnet/ntbnet/internal/perf"

// Report is the outcome of Run. It is printed by Table or as JSON. Times are in
// microseconds; GB/s are 10^9 bytes.
type Report struct {
	Host    perf.Host `json:"host"`
	Rounds  int       `json:"rounds"`        // planned
	Cut     string    `json:"cut,omitempty"` // what was left out for want of time
	SliceMS float64   `json:"slice_ms"`
	// Work is that of forwarding 64 B and 64 KiB.
	Work []Work `json:"work"`
	// Rows are the matrix. The first is between neighbours by stores, for
	// comparison.
	Rows []Row `json:"rows"`
	// Shares are how a link is shared.
	Shares []Share `json:"shares"`
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

// Pair is what one pair of nodes has while the others only forward.
type Pair struct {
	P50        float64 `json:"round_trip_p50_us"` // of 64 B
	P99        float64 `json:"round_trip_p99_us"`
	Throughput float64 `json:"one_way_gbps"` // of 64 KiB
	// Frame is the CPU time of forwarding one frame in the test with 64 B, Data
	// that of forwarding 64 KiB in the test with 64 KiB. Zero over one hop.
	Frame float64 `json:"cpu_of_a_frame_us,omitempty"`
	Data  float64 `json:"cpu_of_64KiB_us,omitempty"`
}

// All is what all pairs have that work at the same time.
type All struct {
	P50        float64 `json:"round_trip_p50_us"` // the median node's
	P99        float64 `json:"round_trip_p99_us"` // the worst node's
	Throughput float64 `json:"one_way_gbps"`      // of all together
	// Slowest is the rate of the slowest pair as a part of the fair share.
	Slowest float64 `json:"slowest_of_fair_share"`
}

// Share is how the link from node 2 to node 3 is shared when node 2 sends all it
// can to node 3, and so does node 1 through node 2.
type Share struct {
	// OwnSize and ForwardedSize are the bytes of the messages of node 2 and node 1.
	OwnSize       int `json:"own_message_bytes"`
	ForwardedSize int `json:"forwarded_message_bytes"`
	// Own is node 2's part of the bytes of the link, 0 to 1. The rest is forwarded.
	Own perf.Spread `json:"own"`
	// Throughput is that of both, in GB/s.
	Throughput float64 `json:"gbps"`
}

// Work is the CPU time of forwarding a frame where the node is busy, so that nobody
// sleeps and is woken, and that of a plain copy of the same bytes.
type Work struct {
	Size    int         `json:"bytes"`
	Forward perf.Spread `json:"forward_us"`
	Copy    perf.Spread `json:"plain_copy_us"`
}

// copy is a plain copy of 64 KiB, in microseconds.
func (r *Report) copy() float64 { return r.Work[len(r.Work)-1].Copy.Median }
