package limits

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/ntb"
)

// startMembers returns a chain whose other processes are goroutines of this one. end ends them,
// and returns the error of each.
func startMembers(t *testing.T, hops int) (c *Chain, end func() []error) {
	t.Helper()
	leak.Check(t)
	c, f, err := NewChain(hops)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	defer f.Close()
	r, w := io.Pipe()
	ended := make(chan error, hops)
	for i := 1; i <= hops; i++ {
		fd, err := unix.Dup(int(f.Fd()))
		require.NoError(t, err)
		go func() {
			f := os.NewFile(uintptr(fd), "limits")
			defer f.Close()
			ended <- ServeChain(f, hops, i, r)
		}()
	}
	return c, func() (errs []error) {
		w.Close()
		for range hops {
			errs = append(errs, <-ended)
		}
		return errs
	}
}

func TestAWordGoesAlongAChainAndBack(t *testing.T) {
	for _, hops := range []int{1, 3} {
		c, end := startMembers(t, hops)
		for range 2 {
			before := c.fromRight
			us, all, err := c.RoundTrips(100 * time.Microsecond)
			require.NoError(t, err)
			assert.Positive(t, us)
			assert.Equal(t, uint64(all), c.fromRight-before)
			for i := range hops {
				assert.Equal(t, c.fromRight, ntb.Load64(c.b, i*pageSize+rightward))
				assert.Equal(t, c.fromRight, ntb.Load64(c.b, (i+1)*pageSize+leftward))
			}
		}
		for _, err := range end() {
			assert.NoError(t, err)
		}
	}
}

// Each piece goes through all queues, in order, and is in the last process' memory at the end.
func TestPiecesGoAlongAChain(t *testing.T) {
	for _, hops := range []int{1, 3} {
		c, end := startMembers(t, hops)
		sent := uint64(0)
		for round := range 3 {
			for i := range c.private {
				c.private[i] = byte(i>>8 + round)
			}
			gbs, all, err := c.Stream(time.Millisecond)
			require.NoError(t, err)
			assert.Positive(t, gbs)
			assert.GreaterOrEqual(t, all, 2*maxBatch)
			sent += uint64(all)
			for i := range hops {
				assert.Equal(t, sent, ntb.Load64(c.b, i*pageSize+stored))
				assert.Equal(t, sent, ntb.Load64(c.b, (i+1)*pageSize+taken))
				at := c.slotAt(i, sent-1)
				assert.Equal(t, c.private, c.b[at:at+chainPiece])
			}
			_, _, err = c.RoundTrips(time.Microsecond)
			require.NoError(t, err)
		}
		for _, err := range end() {
			assert.NoError(t, err)
		}
	}
}

// All processes sleep when there is nothing to do, are woken by what comes, and by their end.
func TestAnIdleChainSleeps(t *testing.T) {
	c, end := startMembers(t, 3)
	asleepNow := func() bool {
		for i := 1; i <= 3; i++ {
			if ntb.Load32(c.b, i*pageSize+asleep) == 0 {
				return false
			}
		}
		return true
	}
	for range 3 {
		require.Eventually(t, asleepNow, time.Minute, time.Millisecond)
		_, _, err := c.RoundTrips(time.Microsecond)
		require.NoError(t, err)
		require.Eventually(t, asleepNow, time.Minute, time.Millisecond)
		_, _, err = c.Stream(time.Microsecond)
		require.NoError(t, err)
	}
	require.Eventually(t, asleepNow, time.Minute, time.Millisecond)
	for _, err := range end() {
		assert.NoError(t, err)
	}
}

func TestStopEndsAChainThatDoesNotAnswer(t *testing.T) {
	c, f, err := NewChain(2)
	require.NoError(t, err)
	defer f.Close()
	time.AfterFunc(10*time.Millisecond, c.Stop)
	_, _, err = c.RoundTrips(time.Millisecond)
	assert.ErrorIs(t, err, errStopped)
	_, _, err = c.Stream(time.Millisecond)
	assert.ErrorIs(t, err, errStopped)
	require.NoError(t, c.Close())
	c.Stop() // as when the last process ends afterwards
}

func TestChainsThatCannotBe(t *testing.T) {
	for _, hops := range []int{-1, 0, MaxHops + 1} {
		_, _, err := NewChain(hops)
		assert.Error(t, err)
	}
	for _, c := range []struct{ hops, index int }{{MaxHops + 1, 1}, {2, 0}, {2, 3}, {-1, 1}} {
		assert.Error(t, ServeChain(nil, c.hops, c.index, nil))
	}
}

func TestMeasureHasTheChains(t *testing.T) {
	c, end := startMembers(t, 2)
	m, _, _ := together(t)
	r, err := m.Measure(Quick, nil, 1, c)
	require.NoError(t, err)
	require.Len(t, r.Chains, 1)
	assert.Equal(t, 2, r.Chains[0].Hops)
	assert.Len(t, r.Chains[0].Runs, Quick.Runs)
	assert.Positive(t, r.Chains[0].Best)
	assert.Len(t, r.Chains[0].Stream.Runs, Quick.Runs)
	assert.Positive(t, r.Chains[0].Stream.Best)
	assert.Positive(t, r.Yield.Best)
	end()
}
