package benchmarks

import (
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// measured is a transport on which streams are measured.
type measured struct {
	name string
	// echo measures round trips and sink one-way messages of size bytes on one connection.
	echo, sink func(b *testing.B, size int)
}

// transports are all of them, in the order in which they are measured.
func transports() (list []measured) {
	for _, network := range networks {
		list = append(list, measured{network,
			func(b *testing.B, size int) { echoBy(b, pairOf(b, ""), network, size) },
			func(b *testing.B, size int) { sinkBy(b, pairOf(b, ""), network, size) },
		})
	}
	return append(list, shmipcTransports()...)
}

// Round trips on one connection. In sdp-parked both ends sleep whenever they wait, as those
// of TCP and of Unix sockets do.
func BenchmarkLatency(b *testing.B) {
	for _, size := range []int{56, 64, 4 << 10, 64 << 10} {
		b.Run("size="+sizeText(size), func(b *testing.B) {
			each(b, func(b *testing.B, t measured) { t.echo(b, size) })
			if size == 64 {
				b.Run("transport=sdp-parked", func(b *testing.B) { echoBy(b, pairOf(b, "?spin=0"), "sdp", size) })
			}
		})
	}
}

// One-way messages on one connection; those of 64 bytes are a stream of small writes.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []int{64, 16 << 10, 64 << 10, 1 << 20} {
		b.Run("size="+sizeText(size), func(b *testing.B) {
			each(b, func(b *testing.B, t measured) { t.sink(b, size) })
		})
	}
}

// The same while as many other processes as processors compute all the time.
func BenchmarkBusyLatency(b *testing.B) {
	loadAll(b)
	each(b, func(b *testing.B, t measured) { t.echo(b, 64) })
}

func BenchmarkBusyThroughput(b *testing.B) {
	loadAll(b)
	each(b, func(b *testing.B, t measured) { t.sink(b, 64<<10) })
}

// loadAll keeps all processors busy until the benchmark ends.
func loadAll(b *testing.B) {
	for range runtime.NumCPU() {
		if _, err := startFor(b, "load", nil).line(); err != nil {
			b.Fatal(err)
		}
	}
}

func each(b *testing.B, f func(*testing.B, measured)) {
	for _, t := range transports() {
		b.Run("transport="+t.name, func(b *testing.B) { f(b, t) })
	}
}

// warmUp is how long a connection is used before it is measured, so that its queues have
// grown and caches are filled.
const warmUp = 10 * time.Millisecond

// sampled is the number of round trips that are timed one by one, after the measurement.
const sampled = 10_000

// echoBy measures round trips.
func echoBy(b *testing.B, p *pair, network string, size int) {
	c, err := p.open(network, opEcho, size)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	echo(b, c, size)
}

// echo measures round trips on a connection of opEcho. It returns how many there were.
func echo(b *testing.B, c net.Conn, size int) (n int) {
	out, in := slices.Repeat([]byte{1}, size), make([]byte, size)
	once := func() {
		if _, err := c.Write(out); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, in); err != nil {
			b.Fatal(err)
		}
		n++
	}
	for start := time.Now(); time.Since(start) < warmUp; {
		once()
	}
	for b.Loop() {
		once()
	}
	each := make([]time.Duration, min(b.N, sampled))
	for i := range each {
		start := time.Now()
		once()
		each[i] = time.Since(start)
	}
	percentiles(b, each)
	return n
}

// percentiles reports the median and the 99th percentile.
func percentiles(b *testing.B, each []time.Duration) {
	if len(each) == 0 {
		return
	}
	slices.Sort(each)
	b.ReportMetric(float64(each[len(each)/2]), "p50-ns")
	b.ReportMetric(float64(each[len(each)*99/100]), "p99-ns")
}

// sinkBy measures one-way messages.
func sinkBy(b *testing.B, p *pair, network string, size int) {
	c, err := p.open(network, opSink, size)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	flood(b, c, size)
}

// flood measures one-way messages on a connection of opSink. Its queue is full when the
// time begins and when it ends, so that what is sent in it is as much as what arrives. It returns how many messages there were.
func flood(b *testing.B, c net.Conn, size int) (n int) {
	out := slices.Repeat([]byte{1}, size) // pages that were never written are all the same one
	once := func() {
		if _, err := c.Write(out); err != nil {
			b.Fatal(err)
		}
		n++
	}
	for start := time.Now(); time.Since(start) < warmUp; {
		once()
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		once()
	}
	if err := finish(c, n, size); err != nil {
		b.Fatal(err)
	}
	return n
}

// connections is how many work at once in Many.
const connections = 64

// BenchmarkMany has many connections work at the same time, each by a goroutine of its own.
// slowest-% is what the slowest one did, as a part of its fair share.
func BenchmarkMany(b *testing.B) {
	b.Run("test=latency/size=64", func(b *testing.B) {
		for _, network := range networks {
			b.Run("transport="+network, func(b *testing.B) { many(b, pairOf(b, ""), network, opEcho, 64) })
		}
	})
	b.Run("test=throughput/size=64K", func(b *testing.B) {
		for _, network := range networks {
			b.Run("transport="+network, func(b *testing.B) { many(b, pairOf(b, ""), network, opSink, 64<<10) })
		}
	})
}

func many(b *testing.B, p *pair, network string, op op, size int) {
	var (
		left   atomic.Int64 // messages that nobody has begun
		begin  = make(chan struct{})
		counts [connections]int
		times  [connections][]time.Duration
		all    sync.WaitGroup
	)
	left.Store(int64(b.N))
	for i := range connections {
		c, err := p.open(network, op, size)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		times[i] = make([]time.Duration, 0, min(b.N, sampled))
		all.Go(func() {
			<-begin
			counts[i], times[i] = take(b, c, op, size, &left, times[i])
		})
	}
	if op == opSink {
		b.SetBytes(int64(size))
	}
	b.ResetTimer()
	close(begin)
	all.Wait()
	b.StopTimer()
	if b.N > 1 {
		b.ReportMetric(100*float64(slices.Min(counts[:])*connections)/float64(b.N), "slowest-%")
	}
	percentiles(b, slices.Concat(times[:]...))
}

// stretch is how many messages a connection of Many begins at a time.
const stretch = 16

// take is what one connection does, in stretches, as long as there are any left. It returns
// how many messages, and the times of one in eight of its round trips.
func take(b *testing.B, c net.Conn, op op, size int, left *atomic.Int64, times []time.Duration) (n int, _ []time.Duration) {
	buf := slices.Repeat([]byte{1}, size)
	for {
		k := left.Add(-stretch) + stretch
		if k <= 0 {
			break
		}
		for range min(k, stretch) {
			start, timed := time.Time{}, op == opEcho && n&7 == 0 && len(times) < cap(times)
			if timed {
				start = time.Now()
			}
			if _, err := c.Write(buf); err != nil {
				b.Error(err)
				return n, times
			}
			if op == opEcho {
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Error(err)
					return n, times
				}
			}
			if timed {
				times = append(times, time.Since(start))
			}
			n++
		}
	}
	if op == opSink {
		if err := finish(c, n, size); err != nil {
			b.Error(err)
		}
	}
	return n, times
}
