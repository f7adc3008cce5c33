package bounce

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

func smallPools(t *testing.T, window int) (pa, pb *Pool) {
	a, b := ntbmem.Pair(window)
	return linkPools(t, a, b, Options{})
}

// Streams that begin in turn share a small window: the first do not keep what they took while
// they were alone.
func TestStreamsShareASmallWindow(t *testing.T) {
	leak.Check(t)
	const streams = 20
	part := int64(16 << 20) // of each stream
	if testing.Short() {
		part = 2 << 20
	}
	pa, pb := smallPools(t, 4<<20)
	var moved [streams]atomic.Int64
	var all sync.WaitGroup
	var pairs []*Pair
	for i := range streams {
		a, b := connect(t, pa, pb)
		pairs = append(pairs, a, b)
		all.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				if _, err := a.Write(buf); err != nil {
					return
				}
			}
		})
		all.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := b.Read(buf)
				if err != nil {
					return
				}
				moved[i].Add(int64(n))
			}
		})
		require.Eventually(t, func() bool { return moved[i].Load() > part }, 60*time.Second, 100*time.Microsecond)
	}
	var before [streams]int64
	sum := func() (sum int64, each []int64) {
		for i := range moved {
			each = append(each, moved[i].Load()-before[i])
			sum += each[i]
		}
		return sum, each
	}
	require.Eventually(t, func() bool { n, _ := sum(); return n > streams*2*part }, 60*time.Second, time.Millisecond)
	for i := range before {
		before[i] = moved[i].Load()
	}
	var each []int64
	fair := func() bool { // a stream that the system stops for a while catches up
		n, now := sum()
		each = now
		return n > streams*4*part && slices.Min(now) > n/streams/4
	}
	for end := time.Now().Add(60 * time.Second); !fair(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), fmt.Sprint(each))
	}
	for _, c := range pairs {
		c.Close()
	}
	all.Wait()
}

// A window of 16 MiB has room for 3 500 connections that have little to say.
func TestManyConnectionsInASmallWindow(t *testing.T) {
	leak.Check(t)
	pa, pb := smallPools(t, 16<<20)
	var pairs []*Pair
	for range 3500 {
		a, b := connect(t, pa, pb)
		pairs = append(pairs, a, b)
		_, err := a.Write([]byte("hello"))
		require.NoError(t, err)
	}
	buf := make([]byte, 8)
	for i := 1; i < len(pairs); i += 2 {
		n, err := pairs[i].Read(buf)
		require.NoError(t, err)
		require.Equal(t, "hello", string(buf[:n]))
	}
	for _, c := range pairs {
		c.Close()
	}
}

// A connection that is alone has most of a small window. The sizes are what lanes leave of 1 MiB, of two nodes and of more, and of 2 MiB.
func TestAConnectionAloneHasMostOfASmallWindow(t *testing.T) {
	for window, queue := range map[int]int64{765952: 512 << 10, 495616: 256 << 10, 1613824: 1 << 20} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			leak.Check(t)
			pa, pb := smallPools(t, window)
			a, b := connect(t, pa, pb)
			var all sync.WaitGroup
			all.Go(func() {
				for buf := make([]byte, 64<<10); ; {
					if _, err := a.Write(buf); err != nil {
						return
					}
				}
			})
			all.Go(func() {
				for buf := make([]byte, 64<<10); ; {
					if _, err := b.Read(buf); err != nil {
						return
					}
				}
			})
			require.Eventually(t, func() bool { return b.r.granter.latest.Load() == queue }, 60*time.Second, time.Millisecond)
			a.Close()
			b.Close()
			all.Wait()
		})
	}
}
