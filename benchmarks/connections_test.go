package benchmarks

import (
	"fmt"
	"io"
	"net/http"
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

// BenchmarkGet makes requests by net/http. Each client has a connection, which it keeps.
func BenchmarkGet(b *testing.B) {
	for _, c := range []struct{ size, clients int }{{1 << 10, 1}, {1 << 10, 32}, {1 << 20, 1}} {
		b.Run(fmt.Sprintf("size=%s/clients=%d", sizeText(c.size), c.clients), func(b *testing.B) {
			for _, network := range networks {
				b.Run("transport="+network, func(b *testing.B) { get(b, pairOf(b, "").client(network, c.clients), c.size, c.clients) })
			}
		})
	}
}

func get(b *testing.B, client *http.Client, size, clients int) {
	defer client.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	b.SetBytes(int64(size))
	b.ResetTimer()
	for range clients {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := getOnce(client, size); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
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
