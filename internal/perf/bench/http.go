package bench

import (
	"errors"
	"net"
	"net/http"
	"strconv"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// HTTPServer answers GET /N with a body of N bytes.
type HTTPServer struct {
	srv http.Server
}

// NewHTTPServer returns a server that has no listener yet.
func NewHTTPServer() *HTTPServer {
	body := make([]byte, perf.MaxSize)
	s := &HTTPServer{}
	s.srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil || n < 0 || n > len(body) {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(n))
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(body[:n]) // the client reports what is missing
	})
	return s
}

// Serve accepts connections from ln until Close, and then returns nil.
func (s *HTTPServer) Serve(ln net.Listener) error {
	err := s.srv.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close closes the listeners and connections.
func (s *HTTPServer) Close() { _ = s.srv.Close() }
