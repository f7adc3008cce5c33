package proxy

import (
	"cmp"
	"encoding/json"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/metrics"
)

// Status is what a proxy is doing. It is served as JSON at /connections.
type Status struct {
	Draining bool        `json:"draining"`
	Maps     []MapStatus `json:"maps"`
}

// MapStatus is what a map is doing.
type MapStatus struct {
	Map            string   `json:"map"` // where it listens
	Targets        []string `json:"targets"`
	Down           []string `json:"down"`            // those of the targets that are tried last
	MaxConnections int      `json:"max_connections"` // 0 for no limit
	Stats
	Connections []Connection `json:"connections"` // the oldest first
}

// Connection is an open connection whose target has answered.
type Connection struct {
	Client     string  `json:"client"`
	ClientBy   string  `json:"client_by"`
	Target     string  `json:"target"`
	TargetBy   string  `json:"target_by"`
	ToTarget   int64   `json:"to_target"`
	FromTarget int64   `json:"from_target"`
	Seconds    float64 `json:"seconds"` // since it was accepted
}

// status returns what a forwarder is doing.
func (f *Forwarder) status() MapStatus {
	m := f.serves()
	all := MapStatus{Map: f.log.at, Targets: m.TargetNames(), MaxConnections: m.MaxConnections, Stats: f.Stats(), Connections: []Connection{}, Down: []string{}}
	for _, t := range f.targets.known(m) {
		if t.last {
			all.Down = append(all.Down, t.at.String())
		}
	}
	open := f.conns.open()
	slices.SortFunc(open, func(a, b *relay) int { return a.about.begun.Compare(b.about.begun) })
	for _, r := range open {
		e := r.about
		all.Connections = append(all.Connections, Connection{e.name(), networkOf(e.client), e.target.String(), e.targetBy(),
			r.toTarget.bytes.Load(), r.fromTarget.bytes.Load(), time.Since(e.begun).Seconds()})
	}
	return all
}

// Status returns what the proxy is doing. It may be called at any time, by any goroutine.
func (s *Server) Status() Status {
	s.mu.Lock()
	maps, draining := slices.Clone(s.maps), s.draining
	s.mu.Unlock()
	all := Status{Draining: draining, Maps: []MapStatus{}}
	for _, f := range maps {
		all.Maps = append(all.Maps, f.status())
	}
	return all
}

// handler serves what operators and their programs ask for.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { metrics.Respond(w, s.writeMetrics) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		draining := s.draining
		s.mu.Unlock()
		if draining {
			http.Error(w, "the proxy ends", http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /connections", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.Status()) // the client has gone
	})
	return mux
}

// writeMetrics writes the counters of maps, and of the proxy.
func (s *Server) writeMetrics(w *metrics.Writer) {
	s.mu.Lock()
	maps, reloads, bad := slices.Clone(s.maps), s.reloads, s.badReloads
	s.mu.Unlock()
	slices.SortStableFunc(maps, func(a, b *Forwarder) int { return cmp.Compare(a.addr.String(), b.addr.String()) })
	all := make([]Stats, len(maps))
	for i, f := range maps {
		all[i] = f.Stats()
	}
	each := func(name, kind, help string, sample func(at string, s *Stats)) {
		w.Family("sdp_proxy_"+name, kind, help)
		for i, f := range maps {
			sample(f.addr.String(), &all[i])
		}
	}
	each("connections_open", "gauge", "Connections that are served now.", func(at string, s *Stats) { w.Sample(float64(s.Open), "map", at) })
	each("connections_total", "counter", "Connections that have ended, by how.", func(at string, s *Stats) {
		for r, n := range [...]int64{closed: s.Total - int64(s.Open) - s.Failed - s.Aborted, refused: s.Refused, failed: s.Failed, aborted: s.Aborted, checked: s.Checks} {
			w.Sample(float64(n), "map", at, "end", result(r).String())
		}
	})
	each("bytes_total", "counter", "Bytes passed on, by where to.", func(at string, s *Stats) {
		w.Sample(float64(s.ToTarget), "map", at, "to", "target")
		w.Sample(float64(s.FromTarget), "map", at, "to", "client")
	})
	s.writeTargets(w, maps)
	w.Family("sdp_proxy_reloads_total", "counter", "Files that were read again, by result.")
	w.Sample(float64(reloads), "result", "taken")
	w.Sample(float64(bad), "result", "refused")
	w.Family("sdp_proxy_log_dropped_total", "counter", "Lines of the log that were dropped, since their reader was too slow, or could not be written.")
	w.Sample(float64(s.lines.Dropped()))
	w.Family("sdp_proxy_goroutines", "gauge", "Goroutines of the proxy.")
	w.Sample(float64(runtime.NumGoroutine()))
}

// writeTargets writes what is known of the targets of maps. It locks none of them while it writes.
func (s *Server) writeTargets(w *metrics.Writer, maps []*Forwarder) {
	type row struct {
		knownTarget
		labels []string
	}
	var rows []row
	for _, f := range maps {
		for _, t := range f.targets.known(f.serves()) {
			rows = append(rows, row{t, []string{"map", f.log.at, "target", t.at.String()}})
		}
	}
	w.Family("sdp_proxy_target_up", "gauge", "Whether a target is tried first: 1, or 0 after dials in a row that failed.")
	for _, r := range rows {
		w.Sample(map[bool]float64{false: 1}[r.last], r.labels...)
	}
	w.Family("sdp_proxy_target_dials_total", "counter", "Dials of a target, checks too, by result.")
	for _, r := range rows {
		w.Sample(float64(r.connected), slices.Concat(r.labels, []string{"result", "connected"})...)
		w.Sample(float64(r.refused), slices.Concat(r.labels, []string{"result", "failed"})...)
	}
	w.Family("sdp_proxy_target_dial_seconds_total", "counter", "Time that the dials took which connected.")
	for _, r := range rows {
		w.Sample(r.took.Seconds(), r.labels...)
	}
}
