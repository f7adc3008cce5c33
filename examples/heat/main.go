// Command heat computes how heat spreads along a rod, of which each PE has a part, until nothing changes
// any more:
//
//	go build -o bin/ ./heat
//	go tool shmemrun -n 4 bin/heat
package main

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/ntbnet/ntbnet/shmem"
)

const (
	cells = 64 // of the rod
	still = 1e-6
)

func main() {
	ctx := context.Background()
	w, err := shmem.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := heat(ctx, w); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}
}

func heat(ctx context.Context, w *shmem.World) error {
	pe, pes := w.PE(), w.NumPEs()
	part := cells*(pe+1)/pes - cells*pe/pes
	// A cell of each neighbour lies before and behind those of this PE.
	rod, err := shmem.AllocZeroed[float64](ctx, w, cells/pes+3)
	if err != nil {
		return err
	}
	cell := rod.Local()[:part+2]
	next := make([]float64, part)
	if pe == 0 {
		cell[0] = 100 // one end is hot, and the other is cold
	}
	change := []float64{math.Inf(1)}
	steps := 0
	for ; change[0] > still; steps++ {
		if err := w.Team().Barrier(ctx); err != nil { // all have read what the last step left
			return err
		}
		if pe > 0 {
			before := cells*pe/pes - cells*(pe-1)/pes
			rod.P(before+1, cell[1], pe-1)
		}
		if pe < pes-1 {
			rod.P(0, cell[part], pe+1)
		}
		if err := w.Team().Barrier(ctx); err != nil { // all puts are there
			return err
		}
		change[0] = 0
		for i := range next {
			next[i] = (cell[i] + cell[i+2]) / 2
			change[0] = max(change[0], math.Abs(next[i]-cell[i+1]))
		}
		copy(cell[1:], next)
		if err := shmem.AllReduce(ctx, w.Team(), change, shmem.Max); err != nil {
			return err
		}
	}
	// PE 0 reads the middle of the rod where it lies.
	if pe == 0 {
		owner := 0
		for cells*(owner+1)/pes <= cells/2 {
			owner++
		}
		middle := rod.G(cells/2-cells*owner/pes+1, owner)
		fmt.Printf("%d PEs, %d steps: %.2f degrees in the middle\n", pes, steps, middle)
	}
	return w.Team().Barrier(ctx)
}
