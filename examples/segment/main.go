// Command segment shows what the memory of another process is like: PE 0 writes records into a segment of
// PE 1, each with a number behind it. PE 1 sleeps until the number comes. At last PE 1 ends without a word,
// and PE 0 learns of it:
//
//	go build -o bin/ ./segment
//	go tool shmemrun -n 2 bin/segment
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ntbnet/ntbnet/shmem"
)

const records, size = 3, 1 << 16

func main() {
	ctx := context.Background()
	w, err := shmem.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if w.NumPEs() != 2 {
		log.Fatal("start 2 PEs")
	}
	// The segment's name is its place in the heap, the same in all processes.
	segment, err := shmem.AllocZeroed[byte](ctx, w, size)
	if err != nil {
		log.Fatal(err)
	}
	number, err := shmem.AllocZeroed[uint64](ctx, w, 2) // of the last record, and of the last one read
	if err != nil {
		log.Fatal(err)
	}
	do := write
	if w.PE() == 1 {
		do = read
	}
	if err := do(ctx, w, segment, number); err != nil {
		log.Fatal(err)
	}
}

func write(ctx context.Context, w *shmem.World, segment shmem.Sym[byte], number shmem.Sym[uint64]) error {
	record := make([]byte, size)
	for n := uint64(1); n <= records; n++ {
		for i := range record {
			record[i] = byte(n)
		}
		// The number is stored when the record is there, and wakes who waits for it.
		shmem.PutSignal(w.Ctx(), segment, record, number, n, shmem.SignalSet, 1)
		if err := shmem.WaitUntil(ctx, number, 1, shmem.Ge, n); err != nil {
			return err
		}
	}
	var gone *shmem.DeadError
	if err := shmem.WaitUntil(ctx, number, 1, shmem.Gt, records); !errors.As(err, &gone) {
		return fmt.Errorf("waiting for what never comes: %v", err)
	}
	fmt.Printf("PE %d is gone\n", gone.PE)
	return nil
}

func read(ctx context.Context, w *shmem.World, segment shmem.Sym[byte], number shmem.Sym[uint64]) error {
	for n := uint64(1); n <= records; n++ {
		if _, err := shmem.SignalWaitUntil(ctx, number, shmem.Eq, n); err != nil {
			return err
		}
		b := segment.Local()
		fmt.Printf("record %d: %d bytes, %d to %d\n", n, len(b), b[0], b[len(b)-1])
		number.P(1, n, 0)
	}
	os.Exit(0) // without Close
	return nil
}
