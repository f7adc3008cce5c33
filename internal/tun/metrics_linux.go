package tun

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// metrics are what WriteMetrics writes of each peer.
var metrics = []struct {
	name, kind, help string
	labels           string
	value            func(p *peer) uint64
}{
	{"up", "gauge", "1 while there is a connection to the node.", "", func(p *peer) uint64 { return uint64(boolean(p.up.Load())) }},
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

// WriteMetrics writes the counters in Prometheus' text format.
func (n *Node) WriteMetrics(w io.Writer) error {
	for _, m := range metrics {
		if m.kind != "" {
			fmt.Fprintf(w, "# HELP sdp_tun_%s %s\n# TYPE sdp_tun_%[1]s %[3]s\n", m.name, m.help, m.kind)
		}
		reason := ""
		if m.labels != "" {
			reason = fmt.Sprintf(",reason=%q", m.labels)
		}
		for _, node := range slices.Sorted(maps.Keys(n.peers)) {
			if _, err := fmt.Fprintf(w, "sdp_tun_%s{node=\"%d\"%s} %d\n", m.name, node, reason, m.value(n.peers[node])); err != nil {
				return err
			}
		}
	}
	return nil
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
