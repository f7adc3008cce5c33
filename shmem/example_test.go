package shmem_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/ntbnet/ntbnet/shmem"
)

// Each PE puts its number to the one on its right. Here the PEs are goroutines of one
// process; as processes, shmemrun starts them, and Open needs no options.
func Example() {
	pe := func(me, n int) {
		ctx := context.Background()
		w, err := shmem.Open(ctx, shmem.PE(me, n, "example"), shmem.Fabric("mem:example"))
		if err != nil {
			log.Fatal(err)
		}
		s, err := shmem.Alloc[int](w, 1)
		if err != nil {
			log.Fatal(err)
		}
		shmem.P(w.Ctx(), s, 0, w.PE(), (w.PE()+1)%w.NumPEs())
		if err := w.Team().Barrier(ctx); err != nil {
			log.Fatal(err)
		}
		if w.PE() == 0 {
			fmt.Println("PE 0 got", s.Local()[0])
		}
		if err := w.Close(); err != nil {
			log.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for me := range 3 {
		wg.Go(func() { pe(me, 3) })
	}
	wg.Wait()
	// Output: PE 0 got 2
}

// A program that no launcher has started is PE 0 of 1.
func ExampleOpen() {
	w, err := shmem.Open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("PE %d of %d\n", w.PE(), w.NumPEs())
	count, err := shmem.AllocZeroed[int64](w, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(shmem.AtomicFetchAdd(w.Ctx(), count, 0, 5, 0), shmem.AtomicFetch(w.Ctx(), count, 0, 0))
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// PE 0 of 1
	// 0 5
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
			data, err := shmem.Alloc[byte](w, 64)
			if err != nil {
				log.Fatal(err)
			}
			ready, err := shmem.AllocZeroed[uint64](w, 1)
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
			if err := w.Close(); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	// Output: hello
}
