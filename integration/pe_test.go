//go:build linux

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ntbnet/ntbnet/shmem"
)

func init() { roles["pe"] = playPE }

// playPE is one of two processing elements, by its argument. It answers with what came of their run.
func playPE(p *self) error {
	pe, err := strconv.Atoi(p.args[0])
	if err != nil {
		return err
	}
	ran := make(chan error)
	go func() { ran <- putAndGet(pe) }()
	p.printf("ready")
	p.readLine()
	if err := <-ran; err != nil {
		return err
	}
	p.printf("ok")
	return nil
}

// putAndGet has two processing elements put into each other's memory and get from it, with barriers between.
func putAndGet(pe int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	w, err := shmem.Open(ctx, shmem.PE(pe, 2, "bridge"), shmem.HeapLimit(1<<20))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	const n = 1000
	s, err := shmem.AllocZeroed[int64](ctx, w, n)
	if err != nil {
		return err
	}
	values := func(of int) (v []int64) {
		for i := range n {
			v = append(v, int64(i*2+of))
		}
		return v
	}
	shmem.Put(w.Ctx(), s, values(pe), 1-pe)
	if err := w.Team().Barrier(ctx); err != nil {
		return err
	}
	if !slices.Equal(s.Local(), values(1-pe)) {
		return fmt.Errorf("PE %d: what was put is not there", pe)
	}
	got := make([]int64, n)
	shmem.Get(w.Ctx(), got, s, 1-pe)
	if !slices.Equal(got, values(pe)) {
		return fmt.Errorf("PE %d: what was got is something else", pe)
	}
	return w.Team().Barrier(ctx)
}
