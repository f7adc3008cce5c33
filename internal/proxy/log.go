package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
	"golang.org/x/time/rate"
)

// NewLogger returns a logger in the format of a Config, for its own level.
func NewLogger(w io.Writer, c *Config, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if c.Log == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Level returns the level of what a Config has logged.
func (c *Config) Level() slog.Level {
	if c.Quiet {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// result is how a connection ended.
type result int

const (
	closed  result = iota // both sides ended their direction in order
	refused               // the client was turned away before a target was dialled
	failed                // no target could be reached
	aborted               // a reset or another error, or the proxy, cut it
	checked               // the client closed without a byte either way; not logged
)

func (r result) String() string {
	return [...]string{"closed", "refused", "failed", "aborted", "checked"}[r]
}

// lastLine is what the log says of a connection that is over.
type lastLine struct {
	client  net.Conn
	uid     int      // of a client of a Unix socket, or -1
	named   net.Addr // the client that a header of the PROXY protocol names; nil for client's address
	to      net.Addr // where that client connected, if it is named
	m       *Map
	target  Endpoint // zero if there was none
	way     way      // of the client of a transparent map, as it wanted to go
	onward  way      // of the dialled connection of a transparent map, if it is TCP
	begun   time.Time
	connect time.Duration // until the target answered
	relay   *relay        // nil before the target answered
	result  result
	by      side
	cause   string
}

// journal is the log of a forwarder.
type journal struct {
	*slog.Logger
	at      string   // where it listens; immutable
	limited *limiter // for lines about targets and Accept
	crowded *limiter // for lines about refused clients
}

// limitBurst is how many lines that have many causes may be written at once.
const limitBurst = 5

// limiter keeps a target that is down, or many clients, from filling the log. It allows some lines at once, and one per
// second after that.
type limiter struct {
	rate *rate.Limiter
	left atomic.Int64 // lines left out since the last one
}

func newLimiter(burst int) *limiter { return &limiter{rate: rate.NewLimiter(1, burst)} }

// allow reports whether a line may be written, and how many were left out before it.
func (l *limiter) allow() (left int64, ok bool) {
	if !l.rate.Allow() {
		l.left.Add(1)
		return 0, false
	}
	return l.left.Swap(0), true
}

// ended writes the one line of a connection. Those of clients that were refused, and of targets that could not be
// reached, are left out if there are too many.
func (j *journal) ended(e *lastLine) {
	level, left := slog.LevelInfo, int64(0)
	if e.result == refused || e.result == failed {
		limit := j.limited
		if e.result == refused {
			limit = j.crowded
		}
		level = slog.LevelWarn
		var ok bool
		if left, ok = limit.allow(); !ok {
			return
		}
	}
	if !j.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs, slog.String("end", e.result.String()), slog.String("map", j.at), slog.String("client", e.name()), slog.String("client_by", networkOf(e.client)))
	if e.named != nil {
		attrs = append(attrs, slog.String("via", e.client.RemoteAddr().String()))
	}
	if e.target != (Endpoint{}) {
		attrs = append(attrs, slog.String("target", e.target.String()), slog.String("target_by", e.targetBy()))
	}
	if e.relay != nil {
		attrs = append(attrs, slog.Int64("to_target", e.relay.toTarget.bytes.Load()), slog.Int64("from_target", e.relay.fromTarget.bytes.Load()),
			slog.Float64("connect_ms", milliseconds(e.connect)))
	}
	attrs = append(attrs, slog.Float64("duration_ms", milliseconds(time.Since(e.begun))), slog.String("by", e.by.String()), slog.String("cause", e.cause))
	if left > 0 {
		attrs = append(attrs, slog.Int64("left_out", left))
	}
	j.LogAttrs(context.Background(), level, "connection", attrs...)
}

// targetBy returns by what the target was reached, or by what it was to be.
func (e *lastLine) targetBy() string {
	if e.relay != nil {
		return networkOf(e.relay.target)
	}
	return e.target.Network
}

func milliseconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }

// networkOf returns by what a connection goes: "tcp", "unix" or "sdp".
func networkOf(c net.Conn) string {
	if _, ok := c.(*sdp.Conn); ok {
		return networkSDP
	}
	return c.LocalAddr().Network()
}

// address returns the address of the client.
func (e *lastLine) address() net.Addr {
	if e.named != nil {
		return e.named
	}
	return e.client.RemoteAddr()
}

// name returns the address of the client, and, where the kernel knows it, its user.
func (e *lastLine) name() string {
	if s, ok := e.client.(*sdp.Conn); ok {
		if p, ok := s.Peer(); ok {
			return fmt.Sprintf("%v,pid=%d,uid=%d", e.client.RemoteAddr(), p.PID, p.UID)
		}
	}
	if networkOf(e.client) == networkUnix {
		return fmt.Sprintf("uid=%d", e.uid)
	}
	return e.address().String()
}

// userOf returns the user of a client of a Unix socket, or -1.
func userOf(c net.Conn) int {
	if u, ok := c.(*unixsock.Conn); ok {
		return u.UID()
	}
	return -1
}

// dialCause returns what the log says of a target that could not be reached: the error without the layers that only
// repeat the address and the name of the call.
func dialCause(err error) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	if call, ok := err.(*os.SyscallError); ok { // not one that an explanation wraps
		err = call.Err
	}
	return err.Error()
}

// causeOf returns what the log says of an error that cut a connection.
func causeOf(err error) string {
	switch {
	case err == nil:
		return "end of file"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	}
	return rootCause(err).Error()
}
