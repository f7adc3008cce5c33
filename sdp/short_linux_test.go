package sdp

import (
	"io"
	"net"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// BenchmarkShortConnections makes a connection, has it carry a few exchanges, and closes it, beside one that stays.
func BenchmarkShortConnections(b *testing.B) {
	for _, transport := range []string{"tcp", "sdp"} {
		for name, size := range map[string]int{"2K": 2 << 10, "200K": 200 << 10} {
			b.Run("transport="+transport+"/size="+name, func(b *testing.B) {
				listen, dial := net.Listen, net.Dial
				address := "127.0.0.1:0"
				if transport == "sdp" {
					server, err := Open("shm:" + fabrictest.Name(b))
					require.NoError(b, err)
					defer server.Close()
					client, err := Open("shm:" + fabrictest.Name(b))
					require.NoError(b, err)
					defer client.Close()
					listen, dial, address = server.Listen, client.Dial, "localhost:0"
				}
				ln, err := listen(transport, address)
				require.NoError(b, err)
				defer ln.Close()
				go func() {
					for {
						c, err := ln.Accept()
						if err != nil {
							return
						}
						go func() {
							defer c.Close()
							_, _ = io.Copy(c, c)
						}()
					}
				}()
				stays, err := dial(transport, ln.Addr().String())
				require.NoError(b, err)
				defer stays.Close()
				buf, in := make([]byte, size), make([]byte, size)
				for b.Loop() {
					c, err := dial(transport, ln.Addr().String())
					require.NoError(b, err)
					for range 4 {
						go c.Write(buf)
						_, err := io.ReadFull(c, in)
						require.NoError(b, err)
					}
					c.Close()
				}
			})
		}
	}
}
