package benchmarks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/ntbnet/ntbnet/shmem"
)

// BenchmarkShmem measures operations of package shmem between PEs of one host, beside Open
// MPI's OpenSHMEM, whose program in C has the same loops, buffers and checks. mapped: the
// other PE's memory is mapped. strict: it is not, as with a bridge, and all goes by requests.
// The PEs of a library run while it is measured only.
func BenchmarkShmem(b *testing.B) {
	for _, pes := range []int{2, 4} {
		b.Run(fmt.Sprintf("pes=%d", pes), func(b *testing.B) {
			for _, lib := range []string{"mapped", "strict"} {
				b.Run("lib="+lib, func(b *testing.B) {
					p := startPEs(b, "shm", pes, 1, lib == "strict")
					for _, o := range operations {
						if o.pes == pes && !(o.mapped && lib == "strict") {
							b.Run("op="+o.name, func(b *testing.B) { p.lead(b, o) })
						}
					}
				})
			}
			b.Run("lib=openmpi", func(b *testing.B) {
				p := startOpenMPI(b, pes)
				for _, o := range operations {
					if o.pes == pes {
						b.Run("op="+o.name, func(b *testing.B) { leadOpenMPI(b, p, o) })
					}
				}
			})
		})
	}
}

// BenchmarkShmemRing measures PEs as nodes of a ring, so many hops apart. The ring of h hops
// has 2h nodes, each a process that forwards what is not for it.
func BenchmarkShmemRing(b *testing.B) {
	for hops := 1; hops <= 4; hops++ {
		for _, lib := range []string{"mapped", "strict"} {
			if hops > 1 && lib == "mapped" {
				continue // the memory of neighbours only is mapped
			}
			b.Run(fmt.Sprintf("hops=%d/lib=%s", hops, lib), func(b *testing.B) {
				p := startPEs(b, "ring", 2*hops, hops, lib == "strict")
				for _, o := range operations {
					if slices.Contains([]string{"putquiet", "get", "put1m"}, o.name) {
						b.Run("op="+o.name, func(b *testing.B) { p.lead(b, o) })
					}
				}
			})
		}
	}
}

const (
	lineBytes  = 64
	largeBytes = 1 << 20
	longs      = largeBytes / 8
	peHeap     = 64 << 20
)

// part is one PE's part in a benchmark. PE 0 is the process that measures. It tells all what
// to do, and when the others work alone, they wait in a barrier:
//
//	PE 0                          the others
//	puts operation and n
//	barrier                       barrier
//	n operations, timed           n operations, if all do it together
//	barrier                       barrier
//	checks                        checks
//	barrier                       barrier
type part struct {
	ctx      context.Context
	w        *shmem.World
	c        *shmem.Ctx
	me, peer int

	// These are symmetric, each on a line of its own: what to do, how often, the value
	// that is expected at the end, and the operands.
	what, count, expect shmem.Sym[int64]
	word, sum, flag     shmem.Sym[int64]
	from, to            shmem.Sym[int64]
	large               shmem.Sym[int64]
	src                 []int64 // this PE's own, of the same size
	reached             []int64 // large at peer, if it is mapped
	total               int64   // operations that are done, here
}

// openPart joins a job.
func openPart(ctx context.Context, pe, pes, peer int, job, fabric string, strict bool) (*part, error) {
	opts := []shmem.Option{shmem.PE(pe, pes, job), shmem.Fabric(fabric), shmem.HeapLimit(peHeap), shmem.Timeout(4 * patience)}
	if strict {
		opts = append(opts, shmem.Strict())
	}
	w, err := shmem.Open(ctx, opts...)
	if err != nil {
		return nil, err
	}
	p := &part{ctx: ctx, w: w, c: w.Ctx(), me: pe, peer: peer, src: make([]int64, longs)}
	for _, s := range append(p.words(), &p.what, &p.count) {
		if *s, err = shmem.AllocZeroed[int64](ctx, w, 2*lineBytes/8); err != nil {
			return nil, err
		}
	}
	if p.large, err = shmem.AllocAligned[int64](ctx, w, 4096, longs); err != nil {
		return nil, err
	}
	p.reached, _ = p.large.Ptr(peer)
	return p, nil
}

// words returns the objects that an operation begins with as zeros.
func (p *part) words() []*shmem.Sym[int64] {
	return []*shmem.Sym[int64]{&p.expect, &p.word, &p.sum, &p.flag, &p.from, &p.to}
}

// startPEs starts the other PEs of a job, and returns PE 0.
func startPEs(b *testing.B, topology string, pes, peer int, strict bool) *part {
	name := freshName()
	fabric := func(pe int) string {
		if topology == "shm" {
			return "shm:" + name
		}
		return fmt.Sprintf("%s:%s?node=%d&nodes=%d", topology, name, pe+1, pes)
	}
	b.Cleanup(func() {
		if err := removeFabric(name); err != nil {
			b.Error(err)
		}
	})
	var others []*process
	for pe := 1; pe < pes; pe++ {
		others = append(others, startFor(b, "pe", nil, strconv.Itoa(pe), strconv.Itoa(pes), strconv.Itoa(peer), name, fabric(pe), strconv.FormatBool(strict)))
	}
	p, err := openPart(b.Context(), 0, pes, peer, name, fabric(0), strict)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		p.ctx = context.Background()
		p.announce(int64(len(operations)), 0)
		err := p.barrier()
		if err == nil {
			err = p.w.Close(p.ctx)
		}
		for _, o := range others {
			if err == nil {
				_, err = o.line()
			}
		}
		if err != nil {
			b.Error(err)
		}
	})
	return p
}

// servePE is the role of the other PEs. Its arguments are those of openPart. It writes a line
// at its end.
func servePE(args []string) error {
	var pe, pes, peer int
	if _, err := fmt.Sscan(args[0]+" "+args[1]+" "+args[2], &pe, &pes, &peer); err != nil {
		return err
	}
	exitWithParent()
	p, err := openPart(context.Background(), pe, pes, peer, args[3], args[4], args[5] == "true")
	if err != nil {
		return err
	}
	for {
		if err := p.barrier(); err != nil {
			return err
		}
		i, n := p.what.Local()[0], p.count.Local()[0]
		if i == int64(len(operations)) {
			break
		}
		if err := p.follow(operations[i], int(n)); err != nil {
			return fmt.Errorf("%s: %w", operations[i].name, err)
		}
	}
	if err := p.w.Close(p.ctx); err != nil {
		return err
	}
	fmt.Println("closed")
	return nil
}

func (p *part) barrier() error { return p.w.Team().Barrier(p.ctx) }

// announce puts what comes next at all PEs.
func (p *part) announce(what, n int64) {
	for pe := range p.w.NumPEs() {
		shmem.P(p.c, p.what, 0, what, pe)
		shmem.P(p.c, p.count, 0, n, pe)
	}
}

// lead measures an operation, as PE 0.
func (p *part) lead(b *testing.B, o operation) {
	fail := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	p.ctx = b.Context()
	p.announce(int64(slices.IndexFunc(operations, func(x operation) bool { return x.name == o.name })), int64(b.N))
	fail(p.barrier())
	p.begin(o)
	fail(p.barrier())
	b.ResetTimer()
	err := o.run(p, b.N)
	b.StopTimer()
	fail(err)
	fail(p.c.Quiet())
	if !o.together {
		shmem.P(p.c, p.expect, 0, p.total, p.peer)
	}
	fail(p.end(o))
	report(b, o, float64(b.Elapsed())/float64(b.N))
}

// report reports an operation that takes ns.
func report(b *testing.B, o operation, ns float64) {
	b.ReportMetric(ns/float64(max(o.ways, 1)), "ns/op")
	if o.bytes > 0 {
		b.ReportMetric(1e3*float64(o.bytes)/ns, "MB/s")
	}
}

// follow is the part of the other PEs.
func (p *part) follow(o operation, n int) error {
	p.begin(o)
	if err := p.barrier(); err != nil {
		return err
	}
	if o.together {
		if err := o.run(p, n); err != nil {
			return err
		}
	}
	return p.end(o)
}

// begin stores the values that an operation begins with.
func (p *part) begin(o operation) {
	p.total = 0
	for _, s := range p.words() {
		clear(s.Local())
	}
	if o.given == wordThere {
		p.word.Local()[0] = theWord
	}
	large := p.large.Local()
	for i := range p.src {
		p.src[i], large[i] = 0, 0
		switch o.given {
		case patternHere:
			p.src[i] = pattern(i)
		case patternThere:
			large[i] = pattern(i)
		}
	}
}

// end checks what is there at the end.
func (p *part) end(o operation) error {
	if err := p.barrier(); err != nil {
		return err
	}
	if o.check != nil {
		if err := o.check(p); err != nil {
			return err
		}
	}
	return p.barrier()
}

// operation is how an operation is measured. run and check are what one PE does.
type operation struct {
	name     string
	run      func(p *part, n int) error // n operations
	check    func(p *part) error        // nil if run has checked everything
	given    given
	together bool // all PEs do it, rather than PE 0 alone
	mapped   bool // the peer's memory must be mapped
	ways     int  // ways that one goes; 0 means 1
	pes      int
	bytes    int
}

// given is what the objects contain when an operation begins; all else is 0.
type given int

const (
	nothing given = iota
	wordThere
	patternHere
	patternThere
)

const theWord = 0x0102030405060708

// pattern returns element i of what large puts carry.
func pattern(i int) int64 { return int64(uint64(i+1) * 0x9E3779B97F4A7C15) }

var operations = []operation{
	{name: "put", pes: 2, run: put, check: checkWord}, // without the wait for completion
	{name: "putquiet", pes: 2, run: putQuiet, check: checkWord},
	{name: "get", pes: 2, run: getWord, given: wordThere},
	{name: "fetchadd", pes: 2, run: fetchAdd, check: checkSum},
	{name: "contended", pes: 2, run: contended, check: checkContended, together: true}, // both PEs on one word
	{name: "oneway", pes: 2, run: oneWay, check: checkFlag, together: true, ways: 2},   // P and WaitUntil
	{name: "barrier", pes: 2, run: barriers, check: checkBarrier, together: true},
	{name: "barrier4", pes: 4, run: barriers, check: checkBarrier, together: true},
	{name: "broadcast", pes: 2, run: broadcast, together: true},
	{name: "put1m", pes: 2, bytes: largeBytes, run: putLarge, check: checkPutLarge, given: patternHere},
	{name: "get1m", pes: 2, bytes: largeBytes, run: getLarge, check: checkGetLarge, given: patternThere},
	{name: "copy", pes: 2, bytes: largeBytes, run: copyLarge, check: checkPutLarge, given: patternHere, mapped: true},
	{name: "copypieces", pes: 2, bytes: largeBytes, run: copyPieces, check: checkPutLarge, given: patternHere, mapped: true},
}

func wrong(what string, got, want int64) error {
	return fmt.Errorf("wrong %s: %d, want %d", what, got, want)
}

func put(p *part, n int) error {
	c, word, src, peer := p.c, p.word, p.src[:1], p.peer
	for i := range int64(n) {
		src[0] = i + 1
		shmem.Put(c, word, src, peer)
	}
	p.total = int64(n)
	return nil
}

func putQuiet(p *part, n int) error {
	c, word, src, peer := p.c, p.word, p.src[:1], p.peer
	for i := range int64(n) {
		src[0] = i + 1
		shmem.Put(c, word, src, peer)
		if err := c.Quiet(); err != nil {
			return err
		}
	}
	p.total = int64(n)
	return nil
}

func getWord(p *part, n int) error {
	c, word, dst, peer, all := p.c, p.word, p.src[:1], p.peer, uint64(0)
	for range n {
		shmem.Get(c, dst, word, peer)
		all += uint64(dst[0])
	}
	if all != uint64(n)*theWord {
		return wrong("sum of values", int64(all), int64(uint64(n)*theWord))
	}
	return nil
}

func fetchAdd(p *part, n int) error {
	c, sum, peer := p.c, p.sum, p.peer
	for i := range int64(n) {
		if old := shmem.AtomicFetchAdd(c, sum, 0, 1, peer); old != i {
			return wrong("value", old, i)
		}
	}
	p.total = int64(n)
	return nil
}

// contended ends when both PEs have done their operations.
func contended(p *part, n int) error {
	if p.me == 0 || p.me == p.peer {
		for range n {
			shmem.AtomicFetchAdd(p.c, p.sum, 0, 1, p.peer)
		}
	}
	p.total = int64(n)
	return p.barrier()
}

func oneWay(p *part, n int) error {
	p.total = int64(n)
	for i := int64(1); i <= int64(n); i++ {
		switch p.me {
		case 0:
			shmem.P(p.c, p.flag, 0, i, p.peer)
			if err := shmem.WaitUntil(p.ctx, p.flag, 0, shmem.Eq, i); err != nil {
				return err
			}
		case p.peer:
			if err := shmem.WaitUntil(p.ctx, p.flag, 0, shmem.Eq, i); err != nil {
				return err
			}
			shmem.P(p.c, p.flag, 0, i, 0)
		}
	}
	return p.c.Err()
}

func barriers(p *part, n int) error {
	for range n {
		if err := p.barrier(); err != nil {
			return err
		}
	}
	return nil
}

// broadcast lets the roots take turns, so that none runs ahead.
func broadcast(p *part, n int) error {
	team, roots := p.w.Team(), [2]int{0, p.peer}
	from, to := p.from.Local(), p.to.Local()
	for i := range n {
		want := int64(i) + 1
		from[0] = want
		if err := shmem.Broadcast(p.ctx, team, p.to, p.from.Slice(0, 1), roots[i&1]); err != nil {
			return err
		}
		if to[0] != want {
			return wrong("value", to[0], want)
		}
	}
	return nil
}

func putLarge(p *part, n int) error {
	for range n {
		shmem.Put(p.c, p.large, p.src, p.peer)
		if err := p.c.Quiet(); err != nil {
			return err
		}
	}
	return nil
}

func getLarge(p *part, n int) error {
	for range n {
		shmem.Get(p.c, p.src, p.large, p.peer)
	}
	return p.c.Err()
}

func copyLarge(p *part, n int) error {
	for range n {
		copy(p.reached, p.src)
	}
	return nil
}

// copyPieces copies in pieces that Go's copy still keeps in the caches.
func copyPieces(p *part, n int) error {
	const half = longs / 2
	for range n {
		copy(p.reached[:half], p.src[:half])
		copy(p.reached[half:], p.src[half:])
	}
	return nil
}

func checkWord(p *part) error { return p.checkAtPeer("word at the end", p.word, p.expect.Local()[0]) }

func checkSum(p *part) error { return p.checkAtPeer("sum at the end", p.sum, p.expect.Local()[0]) }

func checkContended(p *part) error { return p.checkAtPeer("sum at the end", p.sum, 2*p.total) }

func (p *part) checkAtPeer(what string, s shmem.Sym[int64], want int64) error {
	if got := s.Local()[0]; p.me == p.peer && got != want {
		return wrong(what, got, want)
	}
	return nil
}

func checkFlag(p *part) error {
	if got := p.flag.Local()[0]; (p.me == 0 || p.me == p.peer) && got != p.total {
		return wrong("flag at the end", got, p.total)
	}
	return nil
}

// checkBarrier checks that what was put before a barrier is there after it.
func checkBarrier(p *part) error {
	next := (p.me + 1) % p.w.NumPEs()
	for i := range int64(10) {
		shmem.P(p.c, p.word, 0, i+1, next)
		if err := p.barrier(); err != nil {
			return err
		}
		if got := p.word.Local()[0]; got != i+1 {
			return wrong("word after a barrier", got, i+1)
		}
		if err := p.barrier(); err != nil {
			return err
		}
	}
	return nil
}

func checkPutLarge(p *part) error {
	if p.me != p.peer {
		return nil
	}
	return checkPattern(p.large.Local())
}

func checkGetLarge(p *part) error {
	if p.me != 0 {
		return nil
	}
	return checkPattern(p.src)
}

func checkPattern(b []int64) error {
	for i, v := range b {
		if v != pattern(i) {
			return wrong(fmt.Sprintf("element %d", i), v, pattern(i))
		}
	}
	return nil
}
