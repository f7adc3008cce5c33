package tun

import (
	"maps"
	"slices"
	"strconv"

	"github.com/ntbnet/ntbnet/internal/metrics"
)

// counted is what WriteMetrics writes of each peer.
var counted = []struct {
	name, kind, help string
	reason           string
	value            func(p *peer) uint64
}{
	{"up", "gauge", "1 while there is a connection to the node.", "", func(p *peer) uint64 { return map[bool]uint64{true: 1}[p.up.Load()] }},
	{"connects_total", "counter", "Connections that were made.", "", func(p *peer) uint64 { return p.count.connects.Load() }},
	{"refused_total", "counter", "Connections of the node that were refused, since there was one.", "", func(p *peer) uint64 { return p.count.refused.Load() }},
	{"queued_bytes", "gauge", "Bytes that wait.", "", func(p *peer) uint64 { return uint64(p.count.queued.Load()) }},
	{"sent_packets_total", "counter", "Packets sent; a batch of segments is one.", "", func(p *peer) uint64 { return p.count.txPackets.Load() }},
	{"sent_bytes_total", "counter", "Bytes of those packets.", "", func(p *peer) uint64 { return p.count.txBytes.Load() }},
	{"received_packets_total", "counter", "Packets received; a batch of segments is one.", "", func(p *peer) uint64 { return p.count.rxPackets.Load() }},
	{"received_bytes_total", "counter", "Bytes of those packets.", "", func(p *peer) uint64 { return p.count.rxBytes.Load() }},
	{"dropped_packets_total", "counter", "Packets dropped, by reason.", "queue_full", func(p *peer) uint64 { return p.count.overflows.Load() }},
	{"dropped_packets_total", "", "", "waited_too_long", func(p *peer) uint64 { return p.count.late.Load() }},
	{"dropped_packets_total", "", "", "node_down", func(p *peer) uint64 { return p.count.down.Load() }},
	{"dropped_packets_total", "", "", "source_not_allowed", func(p *peer) uint64 { return p.count.source.Load() }},
	{"dropped_packets_total", "", "", "malformed", func(p *peer) uint64 { return p.count.malformed.Load() }},
	{"dropped_packets_total", "", "", "refused_by_kernel", func(p *peer) uint64 { return p.count.kern.Load() }},
}

// WriteMetrics writes the counters.
func (n *Node) WriteMetrics(w *metrics.Writer) {
	for _, m := range counted {
		if m.kind != "" {
			w.Family("sdp_tun_"+m.name, m.kind, m.help)
		}
		for _, node := range slices.Sorted(maps.Keys(n.peers)) {
			labels := []string{"node", strconv.Itoa(node)}
			if m.reason != "" {
				labels = append(labels, "reason", m.reason)
			}
			w.Sample(float64(m.value(n.peers[node])), labels...)
		}
	}
}
