package meter

import (
	"fmt"
	"time"
)

// The tests of a run.
const (
	Bandwidth = "bw"     // one way, as fast as possible or at a rate
	Latency   = "lat"    // round trips, one after the other
	Loaded    = "loaded" // round trips that begin at a set rate
	Connect   = "crr"    // connect, request, response
	Idle      = "idle"   // connections on which nothing is sent
	verifying = "verify" // each byte both ways is checked
)

// Limits of what a client may ask of a server.
const (
	MaxSize    = 16 << 20 // of a message
	MaxStreams = 1000
	MaxIdle    = 100_000   // idle connections
	maxBuffers = 256 << 20 // of all streams of a run together
	// MaxMemory is what all runs of a server for others together take at most, as memory estimates it.
	MaxMemory = 48 << 20
	MaxTime   = 24 * time.Hour
)

// Params says what a run does. The client sends it to the server.
type Params struct {
	Test    string        `json:"test"`
	Streams int           `json:"streams"` // of each direction
	Size    int           `json:"size"`    // of a message, in bytes
	Time    time.Duration `json:"time"`    // measured; 0 if Bytes ends it
	Omit    time.Duration `json:"omit"`    // not measured, before Time
	Bytes   uint64        `json:"bytes"`   // of all streams of a direction; 0 if Time ends it
	Reverse bool          `json:"reverse"` // the server sends
	Bidir   bool          `json:"bidir"`   // both send, on streams of their own
	// Rate is, of a stream, bits per second of Bandwidth, or operations per second of Loaded. 0 is
	// without limit.
	Rate   float64 `json:"rate"`
	Burst  int     `json:"burst"`  // messages that are sent at once at a Rate
	Window int     `json:"window"` // of both buffers of a connection; 0 leaves them alone
	Seed   uint64  `json:"seed"`   // of the data that is checked
	More   bool    `json:"more"`   // the client does another run after this one
	Output bool    `json:"output"` // the client wants what the server prints
}

// Check returns an error that says which value is out of range.
func (p *Params) Check() error {
	streams := MaxStreams
	switch p.Test {
	case Idle:
		streams = MaxIdle
	case Bandwidth, Latency, Loaded, Connect, verifying:
	default:
		return fmt.Errorf("unknown test %q", p.Test)
	}
	switch {
	case p.Streams < 1 || p.Streams > streams:
		return fmt.Errorf("%d streams: use 1 to %d", p.Streams, streams)
	case p.Size < 1 || p.Size > MaxSize:
		return fmt.Errorf("messages of %d bytes: use 1 to %dM", p.Size, MaxSize>>20)
	case p.Test != Idle && p.total()*p.Size > maxBuffers:
		return fmt.Errorf("%d streams with messages of %s: use fewer or smaller, %s together", p.total(), SizeText(p.Size), SizeText(maxBuffers))
	case p.Time < 0 || p.Time > MaxTime || p.Omit < 0 || p.Omit > MaxTime:
		return fmt.Errorf("a time of %v after %v: use at most %v", p.Time, p.Omit, MaxTime)
	case p.Time == 0 && p.Bytes == 0:
		return fmt.Errorf("neither a time nor an amount")
	case p.Rate < 0 || p.Test == Loaded && p.Rate == 0:
		return fmt.Errorf("a rate of %g", p.Rate)
	case p.Burst < 0 || p.Window < 0 || p.Window > 1<<30:
		return fmt.Errorf("a burst of %d, a window of %d bytes", p.Burst, p.Window)
	}
	return nil
}

// total is how many data connections stay open during the run.
func (p *Params) total() int {
	switch {
	case p.Test == Connect:
		return 0
	case p.Bidir:
		return 2 * p.Streams
	}
	return p.Streams
}

// memory returns about how many bytes a server takes for a run, without what its connections keep for themselves.
func (p *Params) memory() int {
	const each = 8 << 10 // of a stream
	n := p.total() * each
	switch p.Test {
	case Bandwidth:
		n += p.Size + p.total()*p.sinkSize()
	case Latency, Loaded:
		n += p.total() * p.Size
	case Connect:
		n += p.Size + p.answers()*each
	case verifying:
		n += p.total() * 4 * maxPiece
	}
	return n
}

// sinkSize returns the size of a receiver's buffer. All of them together have maxSinks.
func (p *Params) sinkSize() int {
	const maxSinks = 24 << 20
	return min(max(p.Size, readSize), maxSinks/p.total())
}

// answers is how many connections of Connect a server answers at the same time. A client has one for each stream, while
// the ones before end.
func (p *Params) answers() int { return 4*p.Streams + 64 }

// sends returns whether a side sends on a stream of Bandwidth.
func (p *Params) sends(client bool, stream int) bool {
	toServer := !p.Reverse
	if p.Bidir {
		toServer = stream < p.Streams
	}
	return toServer == client
}

// SizeText returns a number of bytes with the largest binary unit that leaves no
// fraction, such as "64 KiB".
func SizeText(n int) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n > 0 && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
