package collective

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// The calls of this file take ordinary memory. They copy a piece of it to the stage in this
// PE's heap, do a collective on the stage, and copy the result back. A piece that fits into a
// message costs two copies in the nearest cache; a longer one costs two more copies than the
// same call on symmetric memory.

// Bcast copies buf of PE root to buf of all PEs. All have the same length.
func (t *Team) Bcast(ctx context.Context, buf []byte, root int) error {
	for len(buf) > 0 {
		n := min(len(buf), stageBytes)
		if t.me == root {
			symheap.Copy(t.local(t.stage, n), buf[:n])
		}
		if err := t.Broadcast(ctx, t.stage, t.stage, n, root, true); err != nil {
			return err
		}
		if t.me != root {
			symheap.Copy(buf[:n], t.local(t.stage, n))
		}
		buf = buf[n:]
	}
	return nil
}

// AllReduce combines the elements of size bytes of buf of all PEs, and leaves the result in
// buf of all PEs. All have the same length.
func (t *Team) AllReduce(ctx context.Context, buf []byte, size int, fold Fold) error {
	for len(buf) > 0 {
		n := min(len(buf), stageBytes)
		symheap.Copy(t.local(t.stage, n), buf[:n])
		if err := t.Reduce(ctx, t.stage, t.stage, n/size, size, fold); err != nil {
			return err
		}
		symheap.Copy(buf[:n], t.local(t.stage, n))
		buf = buf[n:]
	}
	return nil
}
