package shmem

import (
	"context"
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
)

// benchmarkCollectives times each collective on PEs of this process that map each
// other's heap as processes do.
func benchmarkCollectives(b *testing.B, npes int, opts []Option) {
	type object = Sym[float64]
	loop := func(name string, bytes int, call func(t *Team, dst, src object) error) {
		b.Run(fmt.Sprintf("%s/%d", name, npes), func(b *testing.B) {
			opts := append([]Option{HeapLimit(64 << 20)}, opts...)
			run(b, npes, "shm:"+fabrictest.Name(b), opts, func(w *World) {
				dst, err := AllocZeroed[float64](context.Background(), w, max(8, npes*bytes/8))
				if err != nil {
					b.Error(err)
					return
				}
				src, err := AllocZeroed[float64](context.Background(), w, max(8, npes*bytes/8))
				if err != nil {
					b.Error(err)
					return
				}
				for range 3 { // touches pages and scratch
					if err := call(w.Team(), dst, src); err != nil {
						b.Error(err)
					}
				}
				if err := w.Team().Sync(context.Background()); err != nil {
					b.Error(err)
				}
				if w.PE() == 0 {
					b.SetBytes(int64(bytes))
					b.ReportAllocs()
					b.ResetTimer()
				}
				for range b.N {
					if err := call(w.Team(), dst, src); err != nil {
						b.Error(err)
						return
					}
				}
				if err := w.Team().Sync(context.Background()); err != nil {
					b.Error(err)
				}
				if w.PE() == 0 {
					b.StopTimer()
				}
			})
		})
	}
	ctx := context.Background()
	loop("Sync", 0, func(t *Team, dst, src object) error { return t.Sync(ctx) })
	loop("Barrier", 0, func(t *Team, dst, src object) error { return t.Barrier(ctx) })
	loop("BroadcastSync8", 8, func(t *Team, dst, src object) error {
		if err := Broadcast(ctx, t, dst, src.Slice(0, 1), 0); err != nil {
			return err
		}
		return t.Sync(ctx)
	})
	for _, bytes := range []int{8, 1024, 1 << 20} {
		n := bytes / 8
		loop(fmt.Sprint("Broadcast", bytes), bytes, func(t *Team, dst, src object) error { return Broadcast(ctx, t, dst, src.Slice(0, n), 0) })
		loop(fmt.Sprint("Sum", bytes), bytes, func(t *Team, dst, src object) error { return SumReduce(ctx, t, dst, src.Slice(0, n)) })
		loop(fmt.Sprint("FCollect", bytes), bytes, func(t *Team, dst, src object) error { return FCollect(ctx, t, dst, src.Slice(0, n)) })
		loop(fmt.Sprint("AlltoAll", bytes), bytes, func(t *Team, dst, src object) error { return AlltoAll(ctx, t, dst, src.Slice(0, n*t.NPEs())) })
	}
	loop("Collect8", 8, func(t *Team, dst, src object) error { return Collect(ctx, t, dst, src.Slice(0, 1)) })
	loop("AlltoAllS1024", 1024, func(t *Team, dst, src object) error { return AlltoAllS(ctx, t, dst, src.Slice(0, 64*t.NPEs()*2), 2, 2) })
}

func BenchmarkCollectivesMapped(b *testing.B) {
	for _, n := range []int{2, 4} {
		benchmarkCollectives(b, n, nil)
	}
}

func BenchmarkCollectivesStrict(b *testing.B) {
	for _, n := range []int{2, 4} {
		benchmarkCollectives(b, n, []Option{Strict()})
	}
}
