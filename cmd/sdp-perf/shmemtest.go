package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
	"github.com/ntbnet/ntbnet/shmem"
)

// elementCommand is one PE of the test of package shmem. Its argument is an element as JSON. It ends
// when its standard input does. PE 0 writes a report.SHMEMItem to its standard output for each item.
const elementCommand = "element"

type element struct {
	PE, PEs int
	Fabric  string
	Strict  bool // by requests, as to a PE whose memory is not mapped
	Time    time.Duration
}

// elementHeap has room for the largest put.
const elementHeap = 16 << 20

func runElement(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	var e element
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &e) != nil {
		return badInputf("%s is started by sdp-perf itself", elementCommand)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is enough
		os.Exit(exitFailed)
	}()
	opts := []shmem.Option{shmem.PE(e.PE, e.PEs, "perf"), shmem.Fabric(e.Fabric), shmem.HeapLimit(elementHeap)}
	if e.Strict {
		opts = append(opts, shmem.Strict())
	}
	w, err := shmem.Open(ctx, opts...)
	if err != nil {
		return err
	}
	// After an error the process ends. So all other PEs learn of it.
	enc := json.NewEncoder(out)
	if err := measureElement(ctx, w, e.Time, func(r report.SHMEMItem) error { return enc.Encode(r) }); err != nil {
		return err
	}
	return w.Close(ctx)
}

// batch is how many operations are timed together. Reading the clock takes as long as one of them.
const batch = 16

// part is the work of one PE.
type part struct {
	ctx  context.Context
	w    *shmem.World
	c    *shmem.Ctx
	word shmem.Sym[int64]
	big  shmem.Sym[byte]
	time time.Duration // of an item
	show func(report.SHMEMItem) error
}

// shmemSizes are those of puts and gets.
var shmemSizes = []int{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}

// measureElement measures between PE 0 and PE 1; all PEs take part in barriers. What arrives is checked.
func measureElement(ctx context.Context, w *shmem.World, total time.Duration, show func(report.SHMEMItem) error) (err error) {
	p := &part{ctx: ctx, w: w, c: w.Ctx(), show: show}
	p.time = total / time.Duration(2*len(shmemSizes)+len(atomics)+1)
	if p.word, err = shmem.AllocZeroed[int64](ctx, w, 16); err != nil {
		return err
	}
	if p.big, err = shmem.AllocAligned[byte](ctx, w, 4096, shmemSizes[len(shmemSizes)-1]); err != nil {
		return err
	}
	for _, size := range shmemSizes {
		if err := p.put(size); err != nil {
			return fmt.Errorf("put of %d bytes: %w", size, err)
		}
	}
	for _, size := range shmemSizes {
		if err := p.get(size); err != nil {
			return fmt.Errorf("get of %d bytes: %w", size, err)
		}
	}
	for _, a := range atomics {
		if err := p.atomic(a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return p.barriers()
}

// sample times an operation, in batches, at PE 0 for the time of an item. It returns how many
// operations there were. Then all PEs wait for each other.
func (p *part) sample(item string, size int, op func(i int64) error) (n int64, err error) {
	if p.w.PE() == 0 {
		times := &meter.Times{}
		for begun, last := time.Now(), time.Duration(0); last < p.time || n < 2*batch; {
			for range batch {
				n++
				if err := op(n); err != nil {
					return n, err
				}
			}
			now := time.Since(begun)
			if n > batch { // the first ones find nothing in the caches
				times.Add(now - last)
			}
			last = now
		}
		if err := p.show(report.SHMEMItem{Item: item, Size: size, Batch: batch, Times: times}); err != nil {
			return n, err
		}
		if err := p.c.Quiet(); err != nil {
			return n, err
		}
		shmem.P(p.c, p.word, 8, n, 1)
	}
	if err := p.barrier(); err != nil {
		return 0, err
	}
	if p.w.PE() == 1 {
		n = p.word.Local()[8]
	}
	return n, nil
}

func (p *part) barrier() error { return p.w.Team().Barrier(p.ctx) }

// pattern is what PE 0 puts, and PE 1 has.
func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

func (p *part) check(b []byte, seed int) error {
	want := make([]byte, len(b))
	pattern(want, seed)
	if string(b) != string(want) {
		return errors.New("wrong data")
	}
	return nil
}

// put times puts with a quiet behind each, as OSU's test does.
func (p *part) put(size int) error {
	src := make([]byte, size)
	pattern(src, size)
	_, err := p.sample("put", size, func(int64) error {
		shmem.Put(p.c, p.big, src, 1)
		return p.c.Quiet()
	})
	if err == nil && p.w.PE() == 1 {
		err = p.check(p.big.Local()[:size], size)
	}
	return errors.Join(err, p.barrier())
}

func (p *part) get(size int) error {
	dst := make([]byte, size)
	pattern(p.big.Local()[:size], size+1)
	if err := p.barrier(); err != nil {
		return err
	}
	_, err := p.sample("get", size, func(int64) error {
		shmem.Get(p.c, dst, p.big, 1)
		return nil
	})
	if err == nil && p.w.PE() == 0 {
		err = p.check(dst, size+1)
	}
	return errors.Join(err, p.barrier())
}

// atomicTest is an atomic operation on a word that holds i-1 before operation i, and i behind it.
type atomicTest struct {
	name string
	op   func(c *shmem.Ctx, s shmem.Sym[int64], i int64) (ok bool)
}

var atomics = []atomicTest{
	{"fadd", func(c *shmem.Ctx, s shmem.Sym[int64], i int64) bool {
		return shmem.AtomicFetchAdd(c, s, 0, 1, 1) == i-1
	}},
	{"add", func(c *shmem.Ctx, s shmem.Sym[int64], i int64) bool { shmem.AtomicAdd(c, s, 0, 1, 1); return true }},
	{"cswap", func(c *shmem.Ctx, s shmem.Sym[int64], i int64) bool {
		return shmem.AtomicCompareSwap(c, s, 0, i-1, i, 1) == i-1
	}},
	{"swap", func(c *shmem.Ctx, s shmem.Sym[int64], i int64) bool { return shmem.AtomicSwap(c, s, 0, i, 1) == i-1 }},
	{"set", func(c *shmem.Ctx, s shmem.Sym[int64], i int64) bool { shmem.AtomicSet(c, s, 0, i, 1); return true }},
}

func (p *part) atomic(a atomicTest) error {
	p.word.Local()[0] = 0
	if err := p.barrier(); err != nil {
		return err
	}
	n, err := p.sample(a.name, 8, func(i int64) error {
		if !a.op(p.c, p.word, i) {
			return fmt.Errorf("wrong value in operation %d", i)
		}
		return nil
	})
	if got := p.word.Local()[0]; err == nil && p.w.PE() == 1 && got != n {
		err = fmt.Errorf("the word is %d, want %d", got, n)
	}
	return errors.Join(err, p.barrier())
}

// barriers times barriers of all PEs. PE 0 says by a word whether another batch follows.
func (p *part) barriers() error {
	times := &meter.Times{}
	for begun, n := time.Now(), 0; ; n++ {
		more := int64(1)
		if time.Since(begun) >= p.time && n > 1 {
			more = 2
		}
		if p.w.PE() == 0 {
			for pe := range p.w.NumPEs() {
				shmem.P(p.c, p.word, 9, more, pe)
			}
		}
		if err := p.barrier(); err != nil {
			return err
		}
		if p.word.Local()[9] == 2 {
			break
		}
		before := time.Now()
		for range batch {
			if err := p.barrier(); err != nil {
				return err
			}
		}
		if n > 0 {
			times.Add(time.Since(before))
		}
	}
	if p.w.PE() == 0 {
		if err := p.show(report.SHMEMItem{Item: "barrier", Size: p.w.NumPEs(), Batch: batch, Times: times}); err != nil {
			return err
		}
	}
	return p.barrier()
}

// runSHMEM measures package shmem between processes of this machine: by loads and stores, and by
// requests.
func runSHMEM(ctx context.Context, o *options, out io.Writer) error {
	if o.client != "" {
		return badInputf("shmem starts its own processes: leave out -c")
	}
	if o.streams == defaultStreams {
		o.streams = 2
	}
	if o.streams > 64 {
		return badInputf("-P %d: use 2 to 64 PEs", o.streams)
	}
	total := defaultTestTime
	if o.time > 0 {
		total = timeOf(o.time)
	}
	rep := &report.SHMEM{Head: report.NewHead(programVersion(), o.arguments), PEs: o.streams}
	line := newProgress(os.Stderr)
	var err error
	for strict, list := range []*[]report.SHMEMItem{&rep.Mapped, &rep.Requests} {
		if err == nil {
			err = runElements(ctx, o.streams, strict == 1, total/2, func(r report.SHMEMItem) {
				line.show("shmem: " + r.Item)
				*list = append(*list, r)
			})
		}
	}
	line.clear()
	rep.Fail(err)
	return firstError(o.print(out, rep, rep.Text, err), o.draw(rep.Picture()))
}

// runElements starts the PEs of a job and waits for them. If one fails, it ends all.
func runElements(ctx context.Context, pes int, strict bool, d time.Duration, add func(report.SHMEMItem)) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A fabric of their own, which is removed when the last of them has noticed that it is to end.
	name := fmt.Sprintf("perf-%d-%08x", os.Getpid(), rand.Uint32())
	defer func() {
		for end := time.Now().Add(childStop); ; time.Sleep(time.Millisecond) {
			removed := fabric.Remove(name)
			if !errors.Is(removed, syscall.EBUSY) || time.Now().After(end) {
				err = errors.Join(err, removed)
				return
			}
		}
	}()
	var wg sync.WaitGroup
	defer wg.Wait()
	for pe := range pes {
		if ctx.Err() != nil {
			break
		}
		args, err := json.Marshal(element{pe, pes, "shm:" + name, strict, d})
		if err != nil {
			return err
		}
		c, err := startChild(false, elementCommand, string(args))
		if err != nil {
			cancel(err)
			break
		}
		defer context.AfterFunc(ctx, c.end)()
		wg.Go(func() {
			for r := (report.SHMEMItem{}); c.answers.Decode(&r) == nil; r = (report.SHMEMItem{}) {
				add(r)
			}
			if err := c.wait(); err != nil {
				cancel(fmt.Errorf("PE %d: %w", pe, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
