package report

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/sdp"
)

// JSON has the keys of iperf3's -J where it has them. What follows them is ours.
type JSON struct {
	Start     Start       `json:"start"`
	Intervals []JInterval `json:"intervals"`
	End       End         `json:"end"`
	Error     string      `json:"error,omitempty"`
}

// Start describes the run.
type Start struct {
	Connected  []Connected `json:"connected"`
	Version    string      `json:"version"`
	SystemInfo string      `json:"system_info"`
	Timestamp  Timestamp   `json:"timestamp"`
	To         struct {
		Host string `json:"host"`
		Port int    `json:"port"`
	} `json:"connecting_to"`
	TestStart TestStart `json:"test_start"`

	Arguments []string `json:"arguments"` // of the command
	Verified  uint64   `json:"verified_bytes_each_way"`
	CPUs      int      `json:"cpus"`
}

// Connected is a stream.
type Connected struct {
	Socket     int    `json:"socket"`
	LocalHost  string `json:"local_host"`
	LocalPort  int    `json:"local_port"`
	RemoteHost string `json:"remote_host"`
	RemotePort int    `json:"remote_port"`
}

// Timestamp is when the run began.
type Timestamp struct {
	Time     string `json:"time"`
	Timesecs int64  `json:"timesecs"`
}

// TestStart has what was asked for.
type TestStart struct {
	Protocol      string  `json:"protocol"` // SDP, TCP or UNIX
	NumStreams    int     `json:"num_streams"`
	Blksize       int     `json:"blksize"`
	Omit          float64 `json:"omit"`
	Duration      float64 `json:"duration"`
	Bytes         uint64  `json:"bytes"`
	Blocks        uint64  `json:"blocks"`
	Reverse       int     `json:"reverse"`
	Bidir         int     `json:"bidir"`
	TargetBitrate float64 `json:"target_bitrate"`

	Test       string  `json:"test"`
	TargetRate float64 `json:"target_operations_per_second,omitempty"`
}

// Amount is what a stream, or all of them, did in a time.
type Amount struct {
	Socket        int     `json:"socket,omitempty"` // not in sums
	Start         float64 `json:"start"`
	End           float64 `json:"end"`
	Seconds       float64 `json:"seconds"`
	Bytes         uint64  `json:"bytes"`
	BitsPerSecond float64 `json:"bits_per_second"`
	Omitted       bool    `json:"omitted"`
	Sender        bool    `json:"sender"`

	Operations uint64 `json:"operations"`
}

// JInterval is a part of a run.
type JInterval struct {
	Streams    []Amount `json:"streams"`
	Sum        Amount   `json:"sum"`
	SumReverse *Amount  `json:"sum_bidir_reverse,omitempty"`
}

// StreamEnd is a stream as both sides count it.
type StreamEnd struct {
	Sender   Amount `json:"sender"`
	Receiver Amount `json:"receiver"`
}

// End has the sums.
type End struct {
	Streams            []StreamEnd `json:"streams"`
	SumSent            Amount      `json:"sum_sent"`
	SumReceived        Amount      `json:"sum_received"`
	SumSentReverse     *Amount     `json:"sum_sent_bidir_reverse,omitempty"`
	SumReceivedReverse *Amount     `json:"sum_received_bidir_reverse,omitempty"`
	CPU                struct {
		HostTotal    float64 `json:"host_total"`
		HostUser     float64 `json:"host_user"`
		HostSystem   float64 `json:"host_system"`
		RemoteTotal  float64 `json:"remote_total"`
		RemoteUser   float64 `json:"remote_user"`
		RemoteSystem float64 `json:"remote_system"`
	} `json:"cpu_utilization_percent"`

	Latency     *Latency      `json:"latency,omitempty"`     // in Loaded since an operation was due
	Uncorrected *Latency      `json:"uncorrected,omitempty"` // Loaded, since it began
	Paths       [2]*sdp.Stats `json:"sdp_stats"`             // here, there
	Memory      [2]float64    `json:"memory_per_connection,omitzero"`
}

// Latency is a distribution of times in microseconds.
type Latency struct {
	Count       int64              `json:"count"`
	Min         float64            `json:"min_us"`
	Mean        float64            `json:"mean_us"`
	Max         float64            `json:"max_us"`
	Percentiles map[string]float64 `json:"percentiles_us"`
	Histogram   *meter.Times       `json:"histogram"` // HdrHistogram, compressed, base64; in nanoseconds
}

// LatencyOf returns a distribution, or nil if there is none.
func LatencyOf(t *meter.Times) *Latency {
	if t == nil || t.Count() == 0 {
		return nil
	}
	l := &Latency{Count: t.Count(), Min: Micros(t.Min()), Mean: Micros(t.Mean()), Max: Micros(t.Max()), Percentiles: map[string]float64{}, Histogram: t}
	for _, p := range meter.Percentiles {
		l.Percentiles["p"+strconv.FormatFloat(p, 'f', -1, 64)] = Micros(t.At(p))
	}
	return l
}

// StartOf describes a run.
func StartOf(r *meter.Result, host, port, version string, arguments []string, verified uint64) Start {
	s := Start{
		Version: version, SystemInfo: System(), Arguments: arguments, Verified: verified, CPUs: runtime.NumCPU(),
		Timestamp: Timestamp{r.Started.UTC().Format(time.RFC1123), r.Started.Unix()},
		Connected: []Connected{},
		TestStart: TestStart{
			Protocol: strings.ToUpper(r.Transport), NumStreams: r.Streams, Blksize: r.Size, Omit: r.Omit.Seconds(),
			Duration: r.Time.Seconds(), Bytes: r.Bytes, Reverse: number(r.Reverse), Bidir: number(r.Bidir), Test: r.Test,
		},
	}
	if r.Test == meter.Bandwidth {
		s.TestStart.TargetBitrate = r.Rate
	} else {
		s.TestStart.TargetRate = r.Rate * float64(r.Streams)
	}
	s.To.Host = host
	s.To.Port, _ = strconv.Atoi(port) // 0 for a path
	for i, c := range r.Connected {
		one := Connected{Socket: i + 1}
		one.LocalHost, one.LocalPort = splitAddress(c[0])
		one.RemoteHost, one.RemotePort = splitAddress(c[1])
		s.Connected = append(s.Connected, one)
	}
	return s
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func splitAddress(s string) (host string, port int) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 0
	}
	port, err := strconv.Atoi(s[i+1:])
	if err != nil {
		return s, 0
	}
	return strings.Trim(s[:i], "[]"), port
}

// System describes the machine.
func System() string {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = []byte("unknown kernel")
	}
	return runtime.GOOS + " " + strings.TrimSpace(string(kernel)) + " " + runtime.GOARCH + ", " + runtime.Version()
}

func amount(s meter.Stream, start, end time.Duration) Amount {
	seconds := (end - start).Seconds()
	a := Amount{Socket: s.ID, Start: start.Seconds(), End: end.Seconds(), Seconds: seconds, Bytes: s.Bytes, Sender: s.Sends, Operations: s.Ops}
	if seconds > 0 {
		a.BitsPerSecond = float64(s.Bytes) * 8 / seconds
	}
	return a
}

// IntervalOf describes a part of a run.
func IntervalOf(r *meter.Result, in meter.Interval) JInterval {
	j := JInterval{Streams: []Amount{}}
	for _, s := range in.Streams {
		a := amount(s, in.Start, in.End)
		a.Omitted = in.Omitted
		j.Streams = append(j.Streams, a)
	}
	sum := func(sends bool) Amount {
		s, _ := total(in.Streams, sends)
		s.ID = 0
		a := amount(s, in.Start, in.End)
		a.Omitted = in.Omitted
		return a
	}
	j.Sum = sum(!r.Reverse)
	if r.Bidir {
		j.Sum = sum(true)
		back := sum(false)
		j.SumReverse = &back
	}
	return j
}

// EndOf has the sums of a run.
func EndOf(r *meter.Result) End {
	e := End{Streams: []StreamEnd{}}
	if r.Here == nil {
		return e
	}
	there := r.There
	if there == nil { // lost: what this side knows is all there is
		there = &meter.Side{}
	}
	var sent, received [2][]meter.Stream // by the client, by the server
	for i, here := range r.Here.Streams {
		other := meter.Stream{ID: here.ID, Sends: !here.Sends}
		if i < len(there.Streams) {
			other = there.Streams[i]
		}
		s, back := StreamEnd{amount(here, 0, here.Took), amount(other, 0, other.Took)}, 0
		if !here.Sends {
			s, back = StreamEnd{s.Receiver, s.Sender}, 1
			sent[back], received[back] = append(sent[back], other), append(received[back], here)
		} else {
			sent[back], received[back] = append(sent[back], here), append(received[back], other)
		}
		s.Sender.Sender, s.Receiver.Sender = true, true // as iperf3 has it: of the direction
		e.Streams = append(e.Streams, s)
	}
	sum := func(all []meter.Stream) Amount {
		var s meter.Stream
		for _, one := range all {
			s.Bytes, s.Ops, s.Took = s.Bytes+one.Bytes, s.Ops+one.Ops, max(s.Took, one.Took)
		}
		s.Sends = !r.Reverse
		return amount(s, 0, s.Took)
	}
	first := number(r.Reverse && !r.Bidir)
	e.SumSent, e.SumReceived = sum(sent[first]), sum(received[first])
	if r.Bidir {
		s, c := sum(sent[1]), sum(received[1])
		e.SumSentReverse, e.SumReceivedReverse = &s, &c
	}
	e.CPU.HostTotal, e.CPU.HostUser, e.CPU.HostSystem = utilization(r.Here)
	e.CPU.RemoteTotal, e.CPU.RemoteUser, e.CPU.RemoteSystem = utilization(there)
	e.Latency, e.Uncorrected = LatencyOf(Times(r)), LatencyOf(r.Here.Sent)
	e.Paths = [2]*sdp.Stats{r.Here.Paths, there.Paths}
	if r.Test == meter.Idle {
		for i, s := range []*meter.Side{r.Here, there} {
			if s.Memory > 0 {
				e.Memory[i] = (float64(s.Memory) - float64(r.Before[i])) / float64(r.Streams)
			}
		}
	}
	return e
}

func utilization(s *meter.Side) (total, user, system float64) {
	return share(s.CPU.Total(), s.Took), share(s.CPU.User, s.Took), share(s.CPU.System, s.Took)
}
