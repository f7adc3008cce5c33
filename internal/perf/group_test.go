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

// Figures have the sleeps that were counted while their value was measured, not those of the warm-up and the samples.
func TestFiguresHaveTheSleepsOfTheirTime(t *testing.T) {
	leavesNothing(t)
	var n atomic.Int64
	g, err := Connect(context.Background(), serve(t, nil, "unix")[0], 1, 64<<10, func(ctx context.Context, e Endpoint) (net.Conn, error) {
		c, err := dialNet(ctx, e)
		return counted{c, &n}, err
	})
	require.NoError(t, err)
	defer g.Close()
	g.TakeSamples(50)
	f, err := g.Slice(context.Background(), RoundTrip, 64<<10, time.Millisecond)
	require.NoError(t, err)
	assert.Zero(t, f.Sleeps, "nothing counts them")
	g.CountSleeps(func(c net.Conn) uint64 { return uint64(n.Load() >> 16) }) // as if one followed each message
	for _, test := range []Test{RoundTrip, OneWay} {
		f, err := g.Slice(context.Background(), test, 64<<10, time.Millisecond)
		require.NoError(t, err)
		assert.Positive(t, f.Sleeps, test)
		assert.Less(t, f.Sleeps, uint64(f.Messages), test)
	}
}
