package main

import (
	"bytes"
	"cmp"
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

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
	"github.com/ntbnet/ntbnet/internal/spec"
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

func runElement(args []string) error {
	ignoreSignals()
	var e element
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &e) != nil {
		return badInputf("%s is started by sdp-perf itself", elementCommand)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is enough
		os.Exit(exitFailed)
	}()
	ctx := context.Background()
	opts := []shmem.Option{shmem.PE(e.PE, e.PEs, "perf"), shmem.Fabric(e.Fabric), shmem.HeapLimit(elementHeap)}
	if e.Strict {
		opts = append(opts, shmem.Strict())
	}
	w, err := shmem.Open(ctx, opts...)
	if err != nil {
		return err
	}
	// After an error the process ends. So all other PEs learn of it.
	if err := measureElement(ctx, w, e.Time); err != nil {
		return err
	}
	return w.Close(ctx)
}

// batch is how many operations are timed together where one takes less than two readings of the clock.
const batch = 16

// part is the work of one PE.
type part struct {
	w    *shmem.World
	c    *shmem.Ctx
	word shmem.Sym[int64] // for atomics, and what PE 0 tells the others
	big  shmem.Sym[byte]
	time time.Duration // of an operation
}

// Offsets in word: of atomics, of how many operations there were, as PE 0 says, and of the processor time
// of the other PEs, which they add up at PE 0.
const (
	countAt = 8
	cpuAt   = 16
)

// shmemSizes are those of puts and gets.
var shmemSizes = []int{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}

// atomics are operations on the word of PE 1 that holds i-1 before operation i, and i behind it.
var atomics = []struct {
	name string
	op   func(c *shmem.Ctx, s shmem.Sym[int64], i int64) (ok bool)
}{
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

// measureElement measures between PE 0 and PE 1; all PEs take part in barriers. What arrives is checked.
func measureElement(ctx context.Context, w *shmem.World, total time.Duration) (err error) {
	p := &part{w: w, c: w.Ctx(), time: total / time.Duration(2*len(shmemSizes)+len(atomics)+1)}
	if p.word, err = shmem.AllocZeroed[int64](ctx, w, 24); err != nil {
		return err
	}
	largest := shmemSizes[len(shmemSizes)-1]
	if p.big, err = shmem.AllocAligned[byte](ctx, w, 4096, largest); err != nil {
		return err
	}
	data, got := make([]byte, largest), make([]byte, largest)
	for _, size := range shmemSizes { // with a quiet behind each put, as in OSU's test
		pattern(data[:size], size)
		err := p.sample("put", size, func(int64) error {
			shmem.Put(p.c, p.big, data[:size], 1)
			return p.c.Quiet()
		}, func(int64) bool { return w.PE() != 1 || bytes.Equal(p.big.Local()[:size], data[:size]) })
		if err != nil {
			return err
		}
	}
	for _, size := range shmemSizes {
		pattern(p.big.Local()[:size], size+1)
		pattern(data[:size], size+1)
		err := p.sample("get", size, func(int64) error {
			shmem.Get(p.c, got[:size], p.big, 1)
			return nil
		}, func(int64) bool { return w.PE() != 0 || bytes.Equal(got[:size], data[:size]) })
		if err != nil {
			return err
		}
	}
	for _, a := range atomics {
		p.word.Local()[0] = 0
		err := p.sample(a.name, 8, func(i int64) error {
			if !a.op(p.c, p.word, i) {
				return errWrong
			}
			return nil
		}, func(n int64) bool { return w.PE() != 1 || p.word.Local()[0] == n })
		if err != nil {
			return err
		}
	}
	return p.sample(barrierItem, w.NumPEs(), func(int64) error { return p.barrier() }, func(int64) bool { return true })
}

const barrierItem = "barrier"

var errWrong = errors.New("wrong data")

// sample times an operation at PE 0, and shows it. check looks at what all n of them left at a PE. No PE
// goes on before all have checked.
func (p *part) sample(item string, size int, op func(i int64) error, check func(n int64) bool) (err error) {
	p.word.Local()[countAt], p.word.Local()[cpuAt] = 0, 0
	if err := p.barrier(); err != nil { // each has prepared its memory
		return err
	}
	n, used := int64(0), meter.OwnCPU()
	shown := report.SHMEMItem{Item: item, Size: size, Batch: batch}
	if p.w.PE() == 0 {
		least, clock := time.Hour, clockTime()
		for begun, last := time.Now(), time.Duration(0); last < p.time || n < 3*batch; {
			for range shown.Batch {
				if n++; err == nil {
					err = op(n)
				}
			}
			if err != nil {
				return fmt.Errorf("%s, size %d: %w", item, size, err)
			}
			now := time.Since(begun)
			if n > 2*batch { // the first ones find nothing in the caches
				shown.Times.Add(now - last - clock)
			} else if least = min(least, now-last); n == 2*batch && least >= 2*batch*clock {
				shown.Batch = 1
			}
			last = now
		}
		shown.CPU = meter.Micros(meter.OwnCPU()-used) / float64(n)
		for pe := range p.w.NumPEs() {
			shmem.AtomicSet(p.c, p.word, countAt, n, pe)
		}
		if err := p.c.Quiet(); err != nil {
			return err
		}
	}
	// All PEs take part in the barriers that PE 0 times, and in this one.
	for made := int64(0); ; made++ {
		if err := p.barrier(); err != nil {
			return err
		}
		n = shmem.AtomicFetch(p.c, p.word, countAt, p.w.PE())
		if item != barrierItem || p.w.PE() == 0 || n > 0 && made == n {
			break
		}
	}
	if p.w.PE() > 0 {
		shmem.AtomicAdd(p.c, p.word, cpuAt, int64(meter.OwnCPU()-used), 0)
	}
	if !check(n) {
		return fmt.Errorf("%s, size %d: %w", item, size, errWrong)
	}
	if err := p.barrier(); err != nil || p.w.PE() > 0 {
		return err
	}
	shown.Others = meter.Micros(time.Duration(p.word.Local()[cpuAt])) / float64(n)
	if json.NewEncoder(os.Stdout).Encode(&shown) != nil {
		return errParentGone
	}
	return nil
}

func (p *part) barrier() error { return p.w.Team().Barrier(context.Background()) }

// clockTime is how long it takes to read the clock.
var clockTime = sync.OnceValue(func() time.Duration {
	const n = 10_000
	begun := time.Now()
	for range n {
		time.Since(begun)
	}
	return time.Since(begun) / n
})

// pattern is what PE 0 puts, and PE 1 has.
func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

// measureSHMEM measures package shmem between processes of this machine: by loads and stores, and by
// requests.
func (o *options) measureSHMEM(ctx context.Context, out io.Writer) error {
	if o.client != "" {
		return badInputf("shmem starts its own processes: leave out -c")
	}
	if o.Streams == defaultStreams {
		o.Streams = 2
	}
	if o.Streams > 64 {
		return badInputf("-P %d: use 2 to 64 PEs", o.Streams)
	}
	rep := &report.SHMEM{Head: o.head(), PEs: o.Streams}
	var err error
	for strict, list := range []*[]report.SHMEMItem{&rep.Mapped, &rep.Requests} {
		if err == nil {
			err = runElements(ctx, o.Streams, strict == 1, cmp.Or(o.Time, defaultTestTime)/2, func(r report.SHMEMItem) {
				progress("shmem: " + r.Item)
				*list = append(*list, r)
			})
		}
	}
	progress("")
	rep.Fail(err)
	return o.print(out, rep, rep.Text, rep.Picture(), err)
}

// runElements starts the PEs of a job and waits for them. If one fails, it ends all.
func runElements(ctx context.Context, pes int, strict bool, d time.Duration, add func(report.SHMEMItem)) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A fabric of their own, which is removed when the last of them has noticed that it is to end.
	name := fmt.Sprintf("perf-%d-%08x", os.Getpid(), rand.Uint32())
	defer func() {
		for end := time.Now().Add(childStop); ; time.Sleep(time.Millisecond) {
			removed := spec.Remove(name)
			if !errors.Is(removed, syscall.EBUSY) || time.Now().After(end) {
				err = errors.Join(err, removed)
				return
			}
		}
	}()
	var wg sync.WaitGroup
	for pe := 0; pe < pes && ctx.Err() == nil; pe++ {
		args, _ := json.Marshal(element{pe, pes, "shm:" + name, strict, d}) // never fails
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
