package report

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// Head is what each report in JSON begins with.
type Head struct {
	Timestamp object   `json:"timestamp"`
	Version   string   `json:"version"`
	System    string   `json:"system_info"`
	CPUs      int      `json:"cpus"`
	Arguments []string `json:"arguments"`
	Verified  uint64   `json:"verified_bytes_each_way"`
	Error     string   `json:"error,omitempty"` // why it ended early
}

// object is a JSON object. Keys that iperf3 has too are iperf3's.
type object = map[string]any

// NewHead describes the machine, and a report that begins now.
func NewHead(version string, arguments []string) Head {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = []byte("unknown kernel")
	}
	return Head{
		Timestamp: timestamp(time.Now()), Version: version, CPUs: runtime.NumCPU(), Arguments: arguments,
		System: runtime.GOOS + " " + strings.TrimSpace(string(kernel)) + " " + runtime.GOARCH + ", " + runtime.Version(),
	}
}

func timestamp(t time.Time) object {
	return object{"time": t.UTC().Format(time.RFC1123), "timesecs": t.Unix()}
}

// Fail sets why the report ended early, if err is not nil.
func (h *Head) Fail(err error) {
	if err != nil {
		h.Error = err.Error()
	}
}

// WriteJSON writes a report.
func WriteJSON(w io.Writer, report any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "\t")
	return enc.Encode(report)
}

// startOf describes a run.
func (p *Reporter) startOf(r *meter.Result) object {
	connected := []object{}
	for i, c := range r.Connected {
		localHost, localPort := splitAddress(c[0])
		remoteHost, remotePort := splitAddress(c[1])
		connected = append(connected, object{
			"socket": i + 1, "local_host": localHost, "local_port": localPort, "remote_host": remoteHost, "remote_port": remotePort,
		})
	}
	test := object{
		"protocol": strings.ToUpper(r.Transport), "num_streams": r.Streams, "blksize": r.Size, "omit": r.Omit.Seconds(),
		"duration": r.Time.Seconds(), "bytes": r.Bytes, "blocks": r.Bytes / uint64(r.Size), "reverse": number(r.Reverse), "bidir": number(r.Bidir),
		"target_bitrate": r.Rate, "test": r.Test,
	}
	if r.Test != meter.Bandwidth { // a rate is of operations
		test["target_bitrate"], test["target_operations_per_second"] = 0, r.Rate*float64(r.Streams)
	}
	peer, host, port := "connecting_to", p.Host, p.Port
	if host == "" { // of a server
		peer = "accepted_connection"
		host, port = splitAddress(r.Remote)
	}
	return object{
		"connected": connected, "version": p.Version, "system_info": p.System, "timestamp": timestamp(r.Started),
		peer: object{"host": host, "port": port}, "test_start": test,
		"arguments": p.Arguments, "verified_bytes_each_way": p.Verified, "cpus": p.CPUs,
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// splitAddress returns the host and port of an address, or a path and 0.
func splitAddress(s string) (host string, port int) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return s, 0
	}
	port, _ = strconv.Atoi(text)
	return host, port
}

// amount is what a stream, or all of them, did in a time. sender is that of the direction.
func amount(s meter.Stream, start, end time.Duration, omitted, sender bool) object {
	a := object{
		"start": start.Seconds(), "end": end.Seconds(), "seconds": (end - start).Seconds(), "bytes": s.Bytes, "operations": s.Ops,
		"bits_per_second": float64(s.Bytes) * 8 / max((end-start).Seconds(), 1e-9), "omitted": omitted, "sender": sender,
	}
	if s.ID > 0 {
		a["socket"] = s.ID
	}
	return a
}

// intervalOf describes a part of a run.
func intervalOf(r *meter.Result, in meter.Interval) object {
	streams := []object{}
	for _, s := range in.Streams {
		streams = append(streams, amount(s, in.Start, in.End, in.Omitted, s.Sends))
	}
	sum := func(sends bool) object {
		s, _ := total(in.Streams, sends)
		return amount(s, in.Start, in.End, in.Omitted, sends)
	}
	sends := len(in.Streams) > 0 && in.Streams[0].Sends // a server sends with Reverse
	j := object{"streams": streams, "sum": sum(sends)}
	if r.Bidir {
		j["sum_bidir_reverse"] = sum(!sends)
	}
	return j
}

// endOf has the sums of a run.
func endOf(r *meter.Result) object {
	each, sums := flows(r)
	of := func(s meter.Stream, client bool) object { return amount(s, 0, s.Took, false, client) }
	streams := []object{}
	for i, f := range each {
		client := r.Here.Streams[i].Sends
		streams = append(streams, object{"sender": of(f.sender, client), "receiver": of(f.receiver, client)})
	}
	sends := r.Here.Streams[0].Sends
	first, back := sums[number(!sends)], sums[number(sends)]
	end := object{"streams": streams, "sum_sent": of(first.sender, sends), "sum_received": of(first.receiver, sends)}
	if r.Bidir {
		end["sum_sent_bidir_reverse"], end["sum_received_bidir_reverse"] = of(back.sender, !sends), of(back.receiver, !sends)
	}
	there := r.There
	if there == nil {
		there = &meter.Side{}
	}
	cpu := object{}
	for name, s := range map[string]*meter.Side{"host": r.Here, "remote": there} {
		user, system := cpuShare(s)
		cpu[name+"_total"], cpu[name+"_user"], cpu[name+"_system"] = user+system, user, system
	}
	end["cpu_utilization_percent"], end["sdp_stats"] = cpu, object{"here": r.Here.Paths, "there": there.Paths}
	end["latency"] = Times(r) // in Loaded since an operation was due
	if r.Test == meter.Loaded {
		end["uncorrected"] = &r.Here.Sent // since it began
	}
	if r.Test == meter.Idle {
		n := float64(r.Streams)
		end["memory_per_connection"] = object{"here": float64(r.Here.Memory) / n, "there": float64(there.Memory) / n}
	}
	return end
}
