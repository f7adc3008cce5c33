package mplite_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/ntbnet/ntbnet/examples/mplite"
	"github.com/ntbnet/ntbnet/shmem"
)

// Each PE but the first sends its number to PE 0, which takes it in any order. In a
// program of several processes, main is what pe does here.
func Example() {
	ctx := context.Background()
	pe := func(me int) {
		w, err := shmem.Open(ctx, shmem.PE(me, 3, "example"), shmem.Fabric("mem:mplite-example"))
		if err != nil {
			log.Fatal(err)
		}
		defer w.Close(ctx)
		c, err := mplite.Open(ctx, w, mplite.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close(ctx)
		if c.PE() > 0 {
			if err := mplite.Send(ctx, c, []float64{float64(c.PE()), 0.5}, 0, 7); err != nil {
				log.Fatal(err)
			}
			return
		}
		sum := 0.0
		for range c.NumPEs() - 1 {
			v := make([]float64, 2)
			last, err := mplite.Recv(ctx, c, v, mplite.AnySource, 7)
			if err != nil {
				log.Fatal(err)
			}
			if int(v[0]) != last.Source {
				log.Fatalf("PE %d sent %v", last.Source, v)
			}
			sum += v[0] * v[1]
		}
		fmt.Println(sum)
	}
	var all sync.WaitGroup
	for me := range 3 {
		all.Go(func() { pe(me) })
	}
	all.Wait()
	// Output: 1.5
}
