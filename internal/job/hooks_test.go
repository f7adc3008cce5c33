package job

import (
	"context"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/launch"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// Every PE's process ends by the hook, whichever PE calls GlobalExit.
func TestGlobalExitCallsTheHook(t *testing.T) {
	if !symheap.CanMap {
		t.Skip("PEs of one process end by errors")
	}
	type exit struct{ pe, status int }
	exits := make(chan exit, 4)
	o := Options{Given: true, N: 2, Job: "j", Fabric: "shm:" + fabrictest.Name(t), Heap: 1 << 20}
	var all [2]*World
	var wg sync.WaitGroup
	for pe := range all {
		o := o
		o.PE = pe
		o.Exit = func(status int) {
			exits <- exit{pe, status}
			runtime.Goexit() // the process of a PE would end here
		}
		wg.Go(func() {
			w, err := Open(context.Background(), o)
			if err != nil {
				t.Error(err)
			}
			all[pe] = w
		})
	}
	wg.Wait()
	go all[1].GlobalExit(7)
	var got []exit
	for range all {
		got = append(got, <-exits)
	}
	require.ElementsMatch(t, []exit{{0, 7}, {1, 7}}, got)
	for _, w := range all {
		wg.Go(w.abandon)
	}
	wg.Wait()
	require.Empty(t, exits, "each ends once")
}

// The heap of a PE that has ended is not used when a wait ends because of it.
func TestTheHeapOfAPEThatHasEndedIsNotUsed(t *testing.T) {
	for name, strict := range map[string]bool{"mapped": false, "strict": true} {
		t.Run(name, func(t *testing.T) {
			var wg, open sync.WaitGroup
			open.Add(3)
			for pe := range 3 {
				wg.Go(func() {
					w, err := Open(context.Background(), Options{Given: true, PE: pe, N: 3, Job: t.Name(), Fabric: "mem:lost", Heap: 1 << 20,
						Strict: strict})
					open.Done()
					if err != nil {
						t.Error(err)
						return
					}
					if pe == 2 {
						open.Wait()
						w.abandon()
						return
					}
					var dead *DeadError
					require.ErrorAs(t, never(context.Background(), w), &dead)
					require.True(t, w.Peer(dead.PE).Dead())
					require.Nil(t, w.Peer(dead.PE).Base())
					require.Error(t, w.Close(context.Background()))
				})
			}
			wg.Wait()
		})
	}
}

// A PE that noticed a failure while it joined has said that it needs no other PE any more, and does not take that back.
func TestAPEThatHasNoticedAFailureDoesNotSayThatItHasJoined(t *testing.T) {
	reads, writes, err := os.Pipe()
	require.NoError(t, err)
	defer reads.Close()
	launcher, err := launch.Find(func(name string) string {
		return map[string]string{"SHMEM_PE": "1", "SHMEM_NPES": "2", "SHMEM_JOB": "late", launch.EnvReport: strconv.Itoa(int(writes.Fd()))}[name]
	})
	require.NoError(t, err)
	var all [2]*World
	var wg sync.WaitGroup
	for pe, l := range []*launch.Job{{PE: 0, N: 2}, launcher} {
		wg.Go(func() {
			w, err := open(context.Background(), options{Options: Options{Given: true, PE: pe, N: 2, Job: "late", Fabric: "mem:late", Heap: 1 << 20}, launcher: l})
			if err != nil {
				t.Error(err)
			}
			all[pe] = w
		})
	}
	wg.Wait()
	all[0].abandon()
	require.Eventually(t, func() bool { return all[1].Err() != nil }, time.Minute, time.Millisecond)
	all[1].reportJoined()
	require.Error(t, all[1].Close(context.Background()))
	require.NoError(t, writes.Close())
	reports, err := io.ReadAll(reads)
	require.NoError(t, err)
	require.Contains(t, string(reports), string(launch.Left))
	require.NotContains(t, string(reports), string(launch.Joined))
}

// A program's own store wakes no wait. With Recheck it is seen all the same.
func TestAWaitSeesAPlainStore(t *testing.T) {
	run(t, 1, "mem:plain", Options{Recheck: time.Millisecond}, func(w *World) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		o := zeros(t, w, 1)
		for v := uint64(1); v <= 5; v++ {
			before := symheap.AtomicLoad(w.heap.Base, symheap.ArmAt, 4)
			go func() {
				for symheap.AtomicLoad(w.heap.Base, symheap.ArmAt, 4) == before { // it does not sleep yet
					runtime.Gosched()
				}
				time.Sleep(3 * time.Millisecond) // without it the test would check less
				symheap.Atomic(w.heap.Base, o.Off, symheap.Set, 8, v, 0)
			}()
			_, err := o.WaitUntil(ctx, 0, onesided.Condition{Size: 8, V: v})
			require.NoError(t, err)
		}
	})
}

func TestTheSizeOfAnObject(t *testing.T) {
	run(t, 2, "mem:sizeat", Options{}, func(w *World) {
		ctx := context.Background()
		for _, size := range []uint64{0, 1, 64, 100_000} {
			off, err := w.Alloc(ctx, size, 1)
			require.NoError(t, err)
			got, ok := w.heap.SizeAt(off)
			require.True(t, ok)
			require.Equal(t, size, got)
			_, ok = w.heap.SizeAt(off + 8)
			require.False(t, ok, "within an object")
			require.NoError(t, w.Free(ctx, off, got))
			_, ok = w.heap.SizeAt(off)
			require.False(t, ok, "it is freed")
		}
	})
}
