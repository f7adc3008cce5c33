package shmem

import (
	"context"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
)

func benchmark(b *testing.B, opts []Option) {
	words := func(name string, size int, body func(c *Ctx, s Sym[uint64], buf []uint64, n int)) {
		b.Run(name, func(b *testing.B) {
			run(b, 2, "shm:"+fabrictest.Name(b), opts, func(w *World) {
				s, err := AllocZeroed[uint64](context.Background(), w, max(8, size/8))
				if err != nil {
					b.Error(err)
					return
				}
				if w.PE() == 0 {
					b.SetBytes(int64(size))
					b.ReportAllocs()
					buf := make([]uint64, size/8)
					b.ResetTimer()
					body(w.Ctx(), s, buf, b.N)
					b.StopTimer()
				}
			})
		})
	}
	words("Put8", 8, func(c *Ctx, s Sym[uint64], buf []uint64, n int) {
		for range n {
			Put(c, s, buf, 1)
		}
	})
	words("P", 8, func(c *Ctx, s Sym[uint64], buf []uint64, n int) {
		for i := range n {
			P(c, s, 0, uint64(i), 1)
		}
	})
	words("Put8Quiet", 8, func(c *Ctx, s Sym[uint64], buf []uint64, n int) {
		for range n {
			Put(c, s, buf, 1)
			_ = c.Quiet()
		}
	})
	words("Get8", 8, func(c *Ctx, s Sym[uint64], buf []uint64, n int) {
		for range n {
			Get(c, buf, s, 1)
		}
	})
	words("FetchAdd", 8, func(c *Ctx, s Sym[uint64], buf []uint64, n int) {
		for range n {
			AtomicFetchAdd(c, s, 0, 1, 1)
		}
	})
	words("Put1M", 1<<20, func(c *Ctx, s Sym[uint64], buf []uint64, n int) {
		for range n {
			Put(c, s, buf, 1)
		}
		_ = c.Quiet()
	})
	words("Get1M", 1<<20, func(c *Ctx, s Sym[uint64], buf []uint64, n int) {
		for range n {
			Get(c, buf, s, 1)
		}
	})
	b.Run("Barrier", func(b *testing.B) {
		run(b, 2, "shm:"+fabrictest.Name(b), opts, func(w *World) {
			if w.PE() == 0 {
				b.ReportAllocs()
				b.ResetTimer()
			}
			for range b.N {
				if err := w.Team().Sync(context.Background()); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

func BenchmarkMapped(b *testing.B) { benchmark(b, nil) }
func BenchmarkStrict(b *testing.B) { benchmark(b, []Option{Strict()}) }
