package benchmarks

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkConnect makes a connection, sends a byte to and fro, and closes it.
func BenchmarkConnect(b *testing.B) {
	for _, network := range networks {
		b.Run("transport="+network, func(b *testing.B) {
			p, in := pairOf(b, ""), make([]byte, 1)
			out := append(command(opEcho, 1, 0), 1)
			for b.Loop() {
				c, err := p.dial(network, p.streams[network])
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Write(out); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, in); err != nil {
					b.Fatal(err)
				}
				if err := c.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// exchanges is how many a connection of BenchmarkChurn has.
const exchanges = 4

// BenchmarkChurn has three clients make a connection, send messages of up to size bytes to and fro, and close it. An operation is a
// connection. faults/op are the page faults of both processes.
func BenchmarkChurn(b *testing.B) {
	for _, size := range []int{2000, 200_000} {
		b.Run("size="+strconv.Itoa(size), func(b *testing.B) {
			for _, network := range networks {
				b.Run("transport="+network, func(b *testing.B) {
					p := pairOf(b, "")
					b.SetBytes(int64(exchanges * size)) // there and back, a size on average
					share(b, p, 3, func(rng *rand.Rand, buf *[]byte) error {
						if len(*buf) < size {
							*buf = make([]byte, size)
						}
						return churn(p, network, (*buf)[:1+rng.IntN(size)])
					})
				})
			}
		})
	}
}

func churn(p *pair, network string, message []byte) error {
	c, err := p.open(network, opEcho, len(message))
	if err != nil {
		return err
	}
	defer c.Close()
	for range exchanges {
		if _, err := c.Write(message); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, message); err != nil {
			return err
		}
	}
	return nil
}

// share has so many clients share b.N operations, and reports the page faults.
func share(b *testing.B, p *pair, clients int, do func(rng *rand.Rand, buf *[]byte) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	before := p.faults(b)
	var all sync.WaitGroup
	b.ResetTimer()
	for i := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			var buf []byte
			for left.Add(-1) >= 0 {
				if err := do(rng, &buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(p.faults(b)-before)/float64(b.N), "faults/op")
}

// BenchmarkGet makes requests by net/http. Each client has a connection, which it keeps, or with keep=0 makes one for each request.
func BenchmarkGet(b *testing.B) {
	for _, c := range []struct{ size, clients, keep int }{
		{1 << 10, 1, 1}, {1 << 10, 8, 1}, {1 << 10, 32, 1}, {1 << 20, 1, 1}, {1 << 10, 1, 0}, {1 << 10, 32, 0}, {100 << 10, 1, 0}, {100 << 10, 32, 0},
	} {
		b.Run(fmt.Sprintf("size=%s/clients=%d/keep=%d", sizeText(c.size), c.clients, c.keep), func(b *testing.B) {
			for _, network := range networks {
				b.Run("transport="+network, func(b *testing.B) {
					p := pairOf(b, "")
					client := p.client(network, c.clients)
					defer client.CloseIdleConnections()
					client.Transport.(*http.Transport).DisableKeepAlives = c.keep == 0
					b.SetBytes(int64(c.size))
					share(b, p, c.clients, func(*rand.Rand, *[]byte) error { return getOnce(client, c.size) })
				})
			}
		})
	}
}

func getOnce(client *http.Client, size int) error {
	resp, err := client.Get(fmt.Sprintf("http://bench/%d", size))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && n != int64(size) {
		err = fmt.Errorf("http: status %s with %d bytes", resp.Status, n)
	}
	return err
}

// faults returns how many page faults both processes have had.
func (p *pair) faults(b *testing.B) (sum int) {
	for _, pid := range []int{os.Getpid(), p.peer.Process.Pid} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), ") ")
		n, err := strconv.Atoi(strings.Fields(after)[7])
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return sum
}
