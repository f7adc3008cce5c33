package perf

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counted counts the bytes that are written.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// Figures have all messages that went to the server, also those of the warm-up and the samples.
func TestFiguresCountEveryMessage(t *testing.T) {
	leavesNothing(t)
	var n atomic.Int64
	g, err := Connect(context.Background(), serve(t, nil, "unix")[0], 2, 64<<10, func(ctx context.Context, e Endpoint) (net.Conn, error) {
		c, err := dialNet(ctx, e)
		return counted{c, &n}, err
	})
	require.NoError(t, err)
	defer g.Close()
	g.TakeSamples(50)
	for _, test := range []Test{RoundTrip, OneWay, RoundTrip} {
		n.Store(0)
		f, err := g.Slice(context.Background(), test, 64<<10, time.Millisecond)
		require.NoError(t, err)
		assert.Equal(t, n.Load()>>16, int64(f.Messages), test) // commands together are less than a message
	}
}
