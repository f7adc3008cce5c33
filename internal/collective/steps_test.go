package collective

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/activemsg"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// counted counts what is written: the requests, since each is short.
type counted struct {
	net.Conn
	writes atomic.Int32
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// idle is a Target that does nothing.
type idle struct{}

func (idle) Stored()  {}
func (idle) Wake()    {}
func (idle) Dead(int) {}
func (idle) Exit(int) {}

// A PE waits for steps and messages before it uses the work area again. It does not wait for the word
// that gives back slots, and that must not arrive in the area of a later team.
func TestQuietWaitsForWordsThatNobodyWaitsFor(t *testing.T) {
	size := int(symheap.Shared+AreaBytes(2)) + 1<<20
	mine, other := symheap.NewGo(size, 7), symheap.NewGo(size, 8)
	defer symheap.ForgetGo(7)
	defer symheap.ForgetGo(8)
	here, there := net.Pipe()
	defer there.Close()
	served := make(chan error)
	go func() { served <- activemsg.Serve(there, symheap.New(other, symheap.Shared), idle{}) }()
	conn := &counted{Conn: here}
	s := onesided.New(0, 2, symheap.New(mine, symheap.Shared), true, nil, func(_ string, _ int, err error) error { return err })
	s.Peers()[1].SetChannel(activemsg.NewChannel(conn))
	area, err := s.Heap().Alloc(uint64(AreaBytes(2)), symheap.PageBytes)
	require.NoError(t, err)
	team := New(s, s.Peers(), 0, area, Layout{})
	quiet := func(want int32, why string) {
		conn.writes.Store(0)
		require.NoError(t, team.Quiet())
		require.Equal(t, want, conn.writes.Load(), why)
	}
	team.step(1)
	quiet(0, "the PE waits for the step")
	for range slots / 2 {
		team.took(1)
	}
	quiet(1, "an acknowledgement is asked for")
	require.EqualValues(t, slots/2, symheap.Load8(&other.Bytes[0], team.pairs[0].from+takenAt))
	quiet(0, "it has come")
	require.NoError(t, here.Close())
	require.Error(t, <-served)
}
