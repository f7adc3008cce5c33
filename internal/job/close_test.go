package job

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// PE 2 ends without Close, and so PE 0 closes. PE 1 has heard of neither when it calls PE 0. What
// it calls returns the end of PE 2, as its later calls do.
func TestCallsOfAPEThatClosedAfterADeathReturnThatDeath(t *testing.T) {
	for name, call := range map[string]func(*onesided.Ctx, onesided.Object, Lock) error{
		"TryG": func(c *onesided.Ctx, o onesided.Object, _ Lock) error { _, _, err := c.TryG(o, 0, 8, 0); return err },
		"Do": func(c *onesided.Ctx, o onesided.Object, _ Lock) error {
			c.Do(symheap.Add, o, 0, 8, 1, 0)
			return c.Quiet()
		},
		"FetchAdd": func(c *onesided.Ctx, o onesided.Object, _ Lock) error { c.FetchAdd(o, 0, 8, 1, 0); return c.Err() },
		"Lock.Set": func(_ *onesided.Ctx, _ onesided.Object, l Lock) error { return l.Set(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			closed := make(chan struct{})
			var ready sync.WaitGroup
			ready.Add(2)
			openEach(t, 3, "mem:closedafterdeath", Options{Strict: true}, func(w *World) {
				ctx := context.Background()
				o := onesided.Object{Space: w.space, Off: symheap.Shared, N: 1}
				l := w.Lock(zeros(t, w, 1).Off)
				barrier(t, w)
				var dead *DeadError
				switch w.PE() {
				case 0:
					ready.Done()
					require.ErrorAs(t, never(ctx, w), &dead)
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
					go func() { called <- call(w.ctx, o, l) }()
					time.Sleep(20 * time.Millisecond) // without it the test would check less
					w.mu.Unlock()
					require.ErrorAs(t, <-called, &dead)
					require.Equal(t, 2, dead.PE)
					require.ErrorAs(t, call(w.ctx, o, l), &dead)
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
	openEach(t, 2, "mem:stray", Options{}, func(w *World) {
		w.closeLimit = time.Hour
		d := &sdp.Dialer{Fabric: w.Fabric()}
		c, err := w.dialHost(context.Background(), d, "localhost:"+strconv.Itoa(w.port(1-w.PE())))
		require.NoError(t, err)
		defer c.Close()
		barrier(t, w)
		require.NoError(t, w.Close(context.Background()))
	})
}

// A reply to no request puts a channel out of step. That PE cannot go on. It and the
// other one return errors from every wait.
func TestABrokenChannelIsToldToBoth(t *testing.T) {
	leak.Check(t)
	sent := make(chan struct{})
	openEach(t, 2, "mem:broken", Options{Strict: true}, func(w *World) {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		require.NoError(t, w.Team().Barrier(ctx))
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
			_, _, err := w.ctx.TryG(onesided.Object{Space: w.space, Off: symheap.Shared, N: 1}, 0, 8, 1)
			require.ErrorContains(t, err, "a reply to no request")
		}
		var dead *DeadError
		require.ErrorAs(t, never(ctx, w), &dead)
		require.Equal(t, 1-w.PE(), dead.PE)
		require.Error(t, w.Close(ctx))
	})
}

// A PE that ends while others are still in Open is noticed at once. They do not wait
// for it until Open's time is over.
func TestADeathDuringOpenIsNoticed(t *testing.T) {
	leak.Check(t)
	errs := make([]error, 3)
	o := options{Options: Options{Given: true, N: 3, Job: "j", Fabric: "mem:dieinopen", Heap: 8 << 20, Timeout: time.Hour}, inProcess: true}
	var wg sync.WaitGroup
	for pe := range 2 {
		own := o.Options
		own.PE = pe
		wg.Go(func() { _, errs[pe] = Open(context.Background(), own) })
	}
	// PE 2 comes, joins PE 0 and 1, and ends.
	o.PE = 2
	w, err := newWorld(t.Context(), o)
	require.NoError(t, err)
	w.spec, err = spec.Parse(o.Fabric)
	require.NoError(t, err)
	w.fabric, err = sdp.Open(o.Fabric)
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
