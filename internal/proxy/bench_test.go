package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/sdp"
)

// joined returns a client joined to a server through a forwarder, over shared memory
// where one side is SDP.
func joined(b *testing.B, from, to string) (client, server net.Conn) {
	b.Helper()
	fabric, err := sdp.Open("shm:" + fabrictest.Name(b))
	if errors.Is(err, ntb.ErrNotSupported) {
		b.Skipf("no SDP on this system: %v", err)
	}
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, fabric.Close()) })
	anywhere := map[string]string{networkTCP: "127.0.0.1:0", networkSDP: "localhost:0"}
	ln, err := listen(context.Background(), &Map{Listen: Endpoint{to, anywhere[to]}}, nil, fabric)
	require.NoError(b, err)
	b.Cleanup(func() { ln.Close() })
	f, err := open(context.Background(), &Map{Listen: Endpoint{from, anywhere[from]}, Targets: []Endpoint{{to, ln.Addr().String()}}}, env{fabric: fabric, log: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	b.Cleanup(f.Close)
	go f.Serve()
	if from == networkSDP {
		client, err = fabric.Dial(networkSDP, f.Addr().Address)
	} else {
		client, err = net.Dial(networkTCP, f.Addr().Address)
	}
	require.NoError(b, err)
	b.Cleanup(func() { client.Close() })
	server, err = ln.Accept()
	require.NoError(b, err)
	b.Cleanup(func() { server.Close() })
	return client, server
}

// eachWay runs a benchmark for each pair of networks for which a proxy is used.
func eachWay(b *testing.B, f func(b *testing.B, from, to string)) {
	for _, p := range [][2]string{{networkTCP, networkSDP}, {networkSDP, networkTCP}, {networkTCP, networkTCP}} {
		b.Run(p[0]+" to "+p[1], func(b *testing.B) { f(b, p[0], p[1]) })
	}
}

func BenchmarkStream(b *testing.B) {
	const size = 64 << 10
	eachWay(b, func(b *testing.B, from, to string) {
		client, server := joined(b, from, to)
		done := make(chan error, 1)
		go func() {
			_, err := io.CopyN(io.Discard, struct{ io.Reader }{server}, int64(b.N)*size)
			done <- err
		}()
		piece := make([]byte, size)
		b.SetBytes(size)
		b.ResetTimer()
		for range b.N {
			if _, err := client.Write(piece); err != nil {
				b.Fatal(err)
			}
		}
		require.NoError(b, <-done)
	})
}

func BenchmarkPingPong(b *testing.B) {
	const size = 64
	eachWay(b, func(b *testing.B, from, to string) {
		client, server := joined(b, from, to)
		go func() {
			piece := make([]byte, size)
			for {
				if _, err := io.ReadFull(server, piece); err != nil {
					return
				}
				if _, err := server.Write(piece); err != nil {
					return
				}
			}
		}()
		piece := make([]byte, size)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			if _, err := client.Write(piece); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(client, piece); err != nil {
				b.Fatal(err)
			}
		}
	})
}
