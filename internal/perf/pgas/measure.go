package pgas

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/shmem"
)

const (
	lineBytes = 64
	batches   = 9
	share     = 16  // a batch takes at least this part of an item's time
	trials    = 100 // of the check of barriers
	longs     = largeBytes / 8
)

// part is one PE's part in the measurements.
type part struct {
	// Immutable.
	ctx  context.Context
	w    *shmem.World
	c    *shmem.Ctx
	me   int
	peer int

	// These are symmetric, each on a line of its own: the number of operations of a
	// batch, set by PE 0, where 0 ends an item; the expected value at the end; and
	// the operands.
	count, expect   shmem.Sym[int64]
	word, sum, flag shmem.Sym[int64]
	from, to        shmem.Sym[int64]
	large           shmem.Sym[int64]
	src             []int64 // this PE's own, of the same size
	total           int64   // operations of the item so far, here
	reached         []int64 // large at peer, if it is mapped
}

// Measure measures items, each for d, between PE 0 and peer. All PEs of w call it with
// the same arguments. PE 0 returns the sample; the sample of the others is empty. If a
// PE finds a wrong value, it returns an error. If that PE then ends, so does the job.
func Measure(ctx context.Context, w *shmem.World, peer int, keys []string, d time.Duration) (Sample, error) {
	p := &part{ctx: ctx, w: w, c: w.Ctx(), me: w.PE(), peer: peer}
	if err := p.alloc(); err != nil {
		return nil, err
	}
	if ok, why := w.Mapped(peer); !ok && p.me == 0 && slices.ContainsFunc(keys, needsMapped) {
		return nil, fmt.Errorf("the memory of PE %d is not mapped: %w", peer, why)
	}
	sample := Sample{}
	for _, key := range keys {
		t, ok := tasks[key]
		if !ok {
			return nil, fmt.Errorf("unknown item %q", key)
		}
		ns, err := p.measure(t, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if p.me == 0 {
			sample[key] = ns
		}
	}
	return sample, p.free()
}

// words returns the symmetric objects of one line each.
func (p *part) words() []*shmem.Sym[int64] {
	return []*shmem.Sym[int64]{&p.count, &p.expect, &p.word, &p.sum, &p.flag, &p.from, &p.to}
}

func (p *part) alloc() (err error) {
	for _, s := range p.words() {
		if *s, err = shmem.AllocZeroed[int64](p.ctx, p.w, 2*lineBytes/8); err != nil {
			return err
		}
	}
	if p.large, err = shmem.AllocAligned[int64](p.ctx, p.w, 4096, longs); err != nil {
		return err
	}
	p.src = make([]int64, longs)
	p.reached, _ = p.large.Ptr(p.peer)
	return nil
}

func (p *part) free() error {
	for _, s := range append(p.words(), &p.large) {
		if err := shmem.Free(p.ctx, *s); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) barrier() error { return p.w.Team().Barrier(p.ctx) }

// putCount puts the count of the next batch at all PEs.
func (p *part) putCount(n int64) {
	for pe := range p.w.NumPEs() {
		shmem.P(p.c, p.count, 0, n, pe)
	}
}

// measure measures one item. At PE 0 it returns ns for an operation.
func (p *part) measure(t task, d time.Duration) (ns float64, err error) {
	p.start(t)
	if err := p.barrier(); err != nil {
		return 0, err
	}
	switch {
	case p.me == 0:
		ns, err = p.lead(t, d)
	case t.together:
		err = p.follow(t)
	default:
		err = p.barrier()
	}
	if err == nil && t.check != nil {
		err = t.check(p)
	}
	if err != nil {
		return 0, err
	}
	return ns, p.barrier()
}

// start stores the values that an item begins with.
func (p *part) start(t task) {
	p.total = 0
	for _, s := range p.words() {
		clear(s.Local())
	}
	if t.given == wordThere {
		p.word.Local()[0] = theWord
	}
	large := p.large.Local()
	for i := range p.src {
		p.src[i], large[i] = 0, 0
		switch t.given {
		case patternHere:
			p.src[i] = pattern(i)
		case patternThere:
			large[i] = pattern(i)
		}
	}
}

// lead is PE 0's part of a measurement.
func (p *part) lead(t task, d time.Duration) (float64, error) {
	ns, err := p.time(t, d)
	if err != nil {
		return 0, err
	}
	if t.together {
		p.putCount(0)
	} else {
		shmem.P(p.c, p.expect, 0, p.total, p.peer)
	}
	return ns, p.barrier()
}

// follow is the part of the other PEs in an item that all do together.
func (p *part) follow(t task) error {
	for {
		if err := p.barrier(); err != nil { // the count has arrived
			return err
		}
		n := p.count.Local()[0]
		if n == 0 {
			return nil
		}
		if err := t.run(p, int(n)); err != nil {
			return err
		}
		if err := p.barrier(); err != nil { // all have finished the batch, and read the count
			return err
		}
	}
}

// time returns ns for an operation, the median of the batches.
func (p *part) time(t task, d time.Duration) (float64, error) {
	n := 1
	for {
		took, err := p.batch(t, n)
		if err != nil {
			return 0, err
		}
		if took >= d/share {
			break
		}
		n *= 2
	}
	var each [batches]float64
	for i := range each {
		took, err := p.batch(t, n)
		if err != nil {
			return 0, err
		}
		each[i] = float64(took.Nanoseconds()) / float64(n)
	}
	slices.Sort(each[:])
	return each[batches/2] / float64(max(t.ways, 1)), nil
}

// batch returns how long n operations took.
func (p *part) batch(t task, n int) (time.Duration, error) {
	if t.together {
		p.putCount(int64(n))
		if err := p.barrier(); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	err := t.run(p, n)
	took := time.Since(begin)
	switch {
	case err != nil:
	case t.together:
		err = p.barrier()
	default:
		err = p.c.Quiet()
	}
	return took, err
}
