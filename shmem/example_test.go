package shmem_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/ntbnet/ntbnet/shmem"
)

// sum adds the numbers of all PEs, at PE 0. Every PE calls it, and gets the sum.
func sum(ctx context.Context, opts ...shmem.Option) (int64, error) {
	w, err := shmem.Open(ctx, opts...)
	if err != nil {
		return 0, err
	}
	total, err := shmem.AllocZeroed[int64](ctx, w, 1)
	if err != nil {
		return 0, err
	}
	shmem.AtomicAdd(w.Ctx(), total, 0, int64(w.PE()), 0)
	if err := w.Team().Barrier(ctx); err != nil {
		return 0, err
	}
	v := total.G(0, 0)
	return v, w.Close(ctx)
}

// neighbours sends each PE's number to the next PE, and returns what this one got and the
// largest that any got. Every PE calls it.
func neighbours(ctx context.Context, w *shmem.World) (got, most float64, err error) {
	s, err := shmem.Alloc[float64](ctx, w, 2) // the same object on every PE
	if err != nil {
		return 0, 0, err
	}
	right := (w.PE() + 1) % w.NumPEs()
	s.Put([]float64{float64(w.PE())}, right) // to its first element at PE right
	if err := w.Team().Barrier(ctx); err != nil {
		return 0, 0, err
	}
	all := []float64{s.Local()[0]}
	err = shmem.AllReduce(ctx, w.Team(), all, shmem.Max) // of ordinary slices
	return s.Local()[0], all[0], err
}

func Example_neighbours() {
	var wg sync.WaitGroup
	for pe := range 3 {
		wg.Go(func() {
			ctx := context.Background()
			w, err := shmem.Open(ctx, shmem.PE(pe, 3, "neighbours"), shmem.Fabric("mem:neighbours"))
			if err != nil {
				log.Fatal(err)
			}
			got, most, err := neighbours(ctx, w)
			if err != nil {
				log.Fatal(err)
			}
			if pe == 0 {
				fmt.Println(got, most)
			}
			if err := w.Close(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	// Output: 2 2
}

// Here the PEs are goroutines of one process. If they are processes, shmemrun starts
// them, and Open needs no options.
func Example() {
	var wg sync.WaitGroup
	for pe := range 4 {
		wg.Go(func() {
			v, err := sum(context.Background(), shmem.PE(pe, 4, "example"), shmem.Fabric("mem:example"))
			if err != nil {
				log.Fatal(err)
			}
			if pe == 3 {
				fmt.Println("PE 3 found", v)
			}
		})
	}
	wg.Wait()
	// Output: PE 3 found 6
}

// A program that no launcher has started is PE 0 of 1.
func ExampleOpen() {
	w, err := shmem.Open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("PE %d of %d\n", w.PE(), w.NumPEs())
	count, err := shmem.AllocZeroed[int64](context.Background(), w, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(shmem.AtomicFetchAdd(w.Ctx(), count, 0, 5, 0), shmem.AtomicFetch(w.Ctx(), count, 0, 0))
	if err := w.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// PE 0 of 1
	// 0 5
}

// Collective calls on ordinary slices need no symmetric objects.
func ExampleAllReduce() {
	const n = 3
	var wg sync.WaitGroup
	for me := range n {
		wg.Go(func() {
			ctx := context.Background()
			w, err := shmem.Open(ctx, shmem.PE(me, n, "allreduce"), shmem.Fabric("mem:allreduce"))
			if err != nil {
				log.Fatal(err)
			}
			v := []float64{float64(me), float64(10 - me)}
			if err := shmem.AllReduce(ctx, w.Team(), v, shmem.Max); err != nil {
				log.Fatal(err)
			}
			if me == 1 {
				fmt.Println(v)
			}
			if err := w.Close(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	// Output: [2 10]
}

func ExamplePutSignal() {
	const n = 2
	var wg sync.WaitGroup
	for me := range n {
		wg.Go(func() {
			ctx := context.Background()
			w, err := shmem.Open(ctx, shmem.PE(me, n, "signal"), shmem.Fabric("mem:signal"))
			if err != nil {
				log.Fatal(err)
			}
			data, err := shmem.Alloc[byte](ctx, w, 64)
			if err != nil {
				log.Fatal(err)
			}
			ready, err := shmem.AllocZeroed[uint64](ctx, w, 1)
			if err != nil {
				log.Fatal(err)
			}
			if w.PE() == 0 {
				shmem.PutSignal(w.Ctx(), data, []byte("hello"), ready, 1, shmem.SignalSet, 1)
			} else {
				if _, err := shmem.SignalWaitUntil(ctx, ready, shmem.Eq, 1); err != nil {
					log.Fatal(err)
				}
				fmt.Printf("%s\n", data.Local()[:5])
			}
			if err := w.Close(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	// Output: hello
}
