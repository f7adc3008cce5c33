package bounce

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbdma"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// countedEngine is an engine that counts the memory that is registered, and has no more
// after the limit.
type countedEngine struct {
	ntb.Device
	limit                  int64
	bytes, allocs, refused *atomic.Int64
}

type countedChannel struct {
	ntb.DMAChannel
	e countedEngine
}

func newCountedEngine(dev ntb.Device, limit int64) countedEngine {
	return countedEngine{dev, limit, new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
}

func (e countedEngine) DMA(i int) ntb.DMAChannel { return countedChannel{e.Device.DMA(i), e} }

func (c countedChannel) Alloc(n int) ([]byte, error) {
	if c.e.bytes.Load()+int64(n) > c.e.limit {
		c.e.refused.Add(1)
		return nil, errors.New("no more memory")
	}
	c.e.bytes.Add(int64(n))
	c.e.allocs.Add(1)
	return c.DMAChannel.Alloc(n)
}

func (c countedChannel) Free(mem []byte) {
	c.e.bytes.Add(int64(-len(mem)))
	c.DMAChannel.Free(mem)
}

// What an engine reads is registered with it, queue by queue, and given back when the
// connection has left the queue or is gone. Where no more can be registered, the CPU stores.
func TestMemoryForAnEngineIsGivenBack(t *testing.T) {
	for name, limit := range map[string]int64{"enough": 1 << 30, "for small queues only": 256 << 10, "for the measurement only": scratch} {
		t.Run(name, func(t *testing.T) {
			da, db := ntbmem.Pair(32 << 20)
			e := newCountedEngine(ntbdma.Wrap(da, ntbdma.Options{Channels: 2}), limit)
			pa, pb := linkPools(t, e, db, Options{Spin: DefaultSpin, DMAThreshold: 512})
			require.Zero(t, e.bytes.Load(), "after the measurement")
			for round := range 3 {
				a, b := connect(t, pa, pb)
				before := e.refused.Load()
				want := make([]byte, 4<<20)
				rand.NewChaCha8([32]byte{1}).Read(want)
				within(t, func() {
					go func() {
						a.Write(want)
						a.CloseWrite()
					}()
					// The queue grows while nobody reads, until no more can be registered.
					for limit < 1<<30 && e.refused.Load() == before {
						time.Sleep(time.Millisecond)
					}
					got, err := io.ReadAll(b)
					require.NoError(t, err)
					require.True(t, bytes.Equal(got, want))
				})
				s := a.Stats()
				if round == 0 || limit >= 1<<30 { // later ones may begin with a queue that is too large for the engine
					require.Positive(t, s.DMABytes)
				}
				refused := e.refused.Load() > before
				require.Equal(t, limit < 1<<30, refused)
				require.True(t, !refused || s.DMAFull > 0, "%+v", s)
				within(t, func() {
					require.NoError(t, b.Close())
					require.NoError(t, a.Close())
					_, n := pa.Stats()
					for n > 0 {
						_, n = pa.Stats()
					}
				})
				require.Zero(t, e.bytes.Load(), "of a connection that is gone")
			}
			require.Greater(t, e.allocs.Load(), int64(0))
		})
	}
}
