package shmem

import (
	"context"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// A PE whose collective failed cannot take part in the others' Close. For them it has
// ended early, although it has called Close.
func TestACloseThatFailsIsToldToAll(t *testing.T) {
	leak.Check(t)
	for mode, opts := range modes {
		t.Run(mode, func(t *testing.T) {
			openEach(t, 2, "mem:closefails-"+mode, opts, func(w *World) {
				if w.PE() == 0 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					defer cancel()
					require.Error(t, w.Team().Barrier(ctx))
					require.ErrorIs(t, w.Close(context.Background()), context.DeadlineExceeded)
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				s := symOf[uint64](w, symheap.Shared, 1)
				err := WaitUntil(ctx, s, 0, Eq, 1<<63)
				var dead *DeadError
				require.ErrorAs(t, err, &dead)
				require.Equal(t, 0, dead.PE)
				require.Error(t, w.Close(ctx))
			})
		})
	}
}

// PE 2 ends without Close, and so PE 0 closes. PE 1 has heard of neither when it calls PE 0. What
// it calls returns the end of PE 2, as its later calls do.
func TestCallsOfAPEThatClosedAfterADeathReturnThatDeath(t *testing.T) {
	for name, call := range map[string]func(*Ctx, Sym[uint64], Lock) error{
		"TryG":           func(c *Ctx, s Sym[uint64], _ Lock) error { _, err := TryG(c, s, 0, 0); return err },
		"AtomicAdd":      func(c *Ctx, s Sym[uint64], _ Lock) error { AtomicAdd(c, s, 0, 1, 0); return c.Quiet() },
		"AtomicFetchAdd": func(c *Ctx, s Sym[uint64], _ Lock) error { AtomicFetchAdd(c, s, 0, 1, 0); return c.Err() },
		"Lock.Set":       func(_ *Ctx, _ Sym[uint64], l Lock) error { return l.Set(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			closed := make(chan struct{})
			var ready sync.WaitGroup
			ready.Add(2)
			openEach(t, 3, "mem:closedafterdeath", []Option{Strict()}, func(w *World) {
				ctx := context.Background()
				s := symOf[uint64](w, symheap.Shared, 1)
				l, err := NewLock(ctx, w)
				require.NoError(t, err)
				require.NoError(t, w.Team().Barrier(ctx))
				var dead *DeadError
				switch w.PE() {
				case 0:
					ready.Done()
					require.ErrorAs(t, WaitUntil(ctx, s, 0, Eq, 1<<63), &dead)
					require.Equal(t, 2, dead.PE)
					require.Error(t, w.Close(ctx))
					close(closed)
				case 1:
					w.mu.Lock() // so that this PE hears nothing
					ready.Done()
					<-closed
					hungUp := make(chan struct{})
					go func() { // which does not hold mu
						for w.peers[0].Channel().Wake() == nil {
							runtime.Gosched()
						}
						close(hungUp)
					}()
					<-hungUp
					called := make(chan error, 1)
					go func() { called <- call(w.Ctx(), s, l) }()
					time.Sleep(20 * time.Millisecond) // without it the test would check less
					w.mu.Unlock()
					require.ErrorAs(t, <-called, &dead)
					require.Equal(t, 2, dead.PE)
					require.ErrorAs(t, call(w.Ctx(), s, l), &dead)
					require.Equal(t, 2, dead.PE)
					require.Error(t, w.Close(ctx))
				case 2:
					ready.Wait() // nobody needs this PE to leave the barrier
					w.abandon()
				}
			})
		})
	}
}

// A program that connects to a PE's port and says nothing does not hold up Close.
func TestAStrayConnectionDoesNotDelayClose(t *testing.T) {
	leak.Check(t)
	openEach(t, 2, "mem:stray", nil, func(w *World) {
		w.closeLimit = time.Hour
		d := &sdp.Dialer{Fabric: w.Fabric()}
		c, err := w.dialHost(context.Background(), d, "localhost:"+strconv.Itoa(w.port(1-w.PE())))
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, w.Team().Barrier(context.Background()))
		require.NoError(t, w.Close(context.Background()))
	})
}

// A reply to no request puts a channel out of step. That PE cannot go on. It and the
// other one return errors from every wait.
func TestABrokenChannelIsToldToBoth(t *testing.T) {
	leak.Check(t)
	sent := make(chan struct{})
	openEach(t, 2, "mem:broken", []Option{Strict()}, func(w *World) {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		require.NoError(t, w.Team().Barrier(ctx))
		s := symOf[uint64](w, symheap.Shared, 1)
		if w.PE() == 1 {
			w.mu.Lock()
			conns := slices.Collect(maps.Keys(w.conns)) // of PE 0, which asks nothing at the moment
			w.mu.Unlock()
			for _, c := range conns {
				_, err := c.Write([]byte{77, 0, 0, 0, 0, 0, 0, 0})
				require.NoError(t, err)
			}
			close(sent)
		} else {
			<-sent
			_, err := TryG(w.Ctx(), s, 0, 1)
			require.ErrorContains(t, err, "a reply to no request")
		}
		var dead *DeadError
		require.ErrorAs(t, WaitUntil(ctx, s, 0, Eq, 1<<63), &dead)
		require.Equal(t, 1-w.PE(), dead.PE)
		require.Error(t, w.Close(ctx))
	})
}

// A PE that ends while others are still in Open is noticed at once. They do not wait
// for it until Open's time is over.
func TestADeathDuringOpenIsNoticed(t *testing.T) {
	leak.Check(t)
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for pe := range 2 {
		wg.Go(func() {
			_, errs[pe] = Open(context.Background(), PE(pe, 3, "j"), Fabric("mem:dieinopen"), HeapLimit(8<<20), Timeout(time.Hour))
		})
	}
	// PE 2 comes, joins PE 0 and 1, and ends.
	o := options{pe: 2, n: 3, job: "j", fabric: "mem:dieinopen", heap: 8 << 20, timeout: time.Hour, inProcess: true}
	w, err := newWorld(o, true)
	require.NoError(t, err)
	w.spec, err = fabric.ParseSpec(o.fabric)
	require.NoError(t, err)
	w.fabric, err = sdp.Open(o.fabric)
	require.NoError(t, err)
	for pe := range 2 {
		require.NoError(t, w.connect(context.Background(), pe))
	}
	w.abandon()
	wg.Wait()
	for pe := range 2 {
		var dead *DeadError
		require.ErrorAs(t, errs[pe], &dead)
		require.ErrorContains(t, errs[pe], "missing")
	}
}
