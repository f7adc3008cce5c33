package pgas

import (
	"fmt"

	"github.com/ntbnet/ntbnet/shmem"
)

// task is how an item is measured. run and check are the functions of one PE.
type task struct {
	run      func(p *part, n int) error // n operations
	check    func(p *part) error        // nil if run has checked everything
	together bool                       // all PEs do it, rather than PE 0 alone
	ways     int                        // ways that one operation of run takes; 0 means 1
	given    given
}

// given is what the objects contain when an item begins; all else is 0.
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

var tasks = map[string]task{
	"put":        {run: put, check: checkWord},
	"putquiet":   {run: putQuiet, check: checkWord},
	"get":        {run: get, given: wordThere},
	"fetchadd":   {run: fetchAdd, check: checkSum},
	"contended":  {run: contended, check: checkContended, together: true},
	"oneway":     {run: oneWay, check: checkFlag, together: true, ways: 2},
	"barrier":    {run: barrier, check: checkBarrier, together: true},
	"barrier4":   {run: barrier, check: checkBarrier, together: true},
	"broadcast":  {run: broadcast, together: true},
	"put1m":      {run: putLarge, check: checkPutLarge, given: patternHere},
	"get1m":      {run: getLarge, check: checkGetLarge, given: patternThere},
	"copy":       {run: copyLarge, check: checkPutLarge, given: patternHere},
	"copypieces": {run: copyPieces, check: checkPutLarge, given: patternHere},
}

func wrong(what string, got, want int64) error {
	return fmt.Errorf("wrong %s: %d, want %d", what, got, want)
}

func put(p *part, n int) error {
	c, word, src, peer, first := p.c, p.word, p.src[:1], p.peer, p.total+1
	for i := range int64(n) {
		src[0] = first + i
		shmem.Put(c, word, src, peer)
	}
	p.total += int64(n)
	return nil
}

func putQuiet(p *part, n int) error {
	c, word, src, peer, first := p.c, p.word, p.src[:1], p.peer, p.total+1
	for i := range int64(n) {
		src[0] = first + i
		shmem.Put(c, word, src, peer)
		if err := c.Quiet(); err != nil {
			return err
		}
	}
	p.total += int64(n)
	return nil
}

func get(p *part, n int) error {
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
	c, sum, peer, total := p.c, p.sum, p.peer, p.total
	for i := range int64(n) {
		if old := shmem.AtomicFetchAdd(c, sum, 0, 1, peer); old != total+i {
			return wrong("value", old, total+i)
		}
	}
	p.total += int64(n)
	return nil
}

// contended ends when both PEs have done their operations.
func contended(p *part, n int) error {
	if p.me == 0 || p.me == p.peer {
		for range n {
			shmem.AtomicFetchAdd(p.c, p.sum, 0, 1, p.peer)
		}
	}
	p.total += int64(n)
	return p.barrier()
}

func oneWay(p *part, n int) error {
	switch p.me {
	case 0:
		for i := p.total + 1; i <= p.total+int64(n); i++ {
			shmem.P(p.c, p.flag, 0, i, p.peer)
			if err := shmem.WaitUntil(p.ctx, p.flag, 0, shmem.Eq, i); err != nil {
				return err
			}
		}
	case p.peer:
		for i := p.total + 1; i <= p.total+int64(n); i++ {
			if err := shmem.WaitUntil(p.ctx, p.flag, 0, shmem.Eq, i); err != nil {
				return err
			}
			shmem.P(p.c, p.flag, 0, i, 0)
		}
	}
	p.total += int64(n)
	return p.c.Err()
}

func barrier(p *part, n int) error {
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
		want := p.total + int64(i) + 1
		from[0] = want
		if err := shmem.Broadcast(p.ctx, team, p.to, p.from.Slice(0, 1), roots[i&1]); err != nil {
			return err
		}
		if to[0] != want {
			return wrong("value", to[0], want)
		}
	}
	p.total += int64(n)
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

func checkWord(p *part) error {
	return p.checkAtPeer("word at the end", p.word, p.expect.Local()[0])
}

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
	for i := range int64(trials) {
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
