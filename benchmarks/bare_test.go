package benchmarks

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/ntb"
)

// A bare chain is processes of which each shares memory with its neighbours. They pass a word
// along and back, or each copies pieces of 64 KiB on, with no code of a connection. They want
// no processor each: one that waits calls sched_yield after each poll. A page of the memory
// belongs to each process. Behind the pages are the queues, one for each process but the
// last.
const (
	rightward = 0    // the word for the next process
	stored    = 512  // how many pieces the process has stored for the next one
	leftward  = 1024 // the word for the one before
	taken     = 1536 // how many pieces it has taken from the one before
	pageSize  = 4096

	barePiece = 64 << 10
	bareSlots = 32 // as many as a lane has
	bareQueue = bareSlots * barePiece
)

func bareSize(hops int) int { return (hops+1)*pageSize + hops*bareQueue }

// member is one process of a bare chain.
type member struct {
	*shared
	index, last int // its number, and that of the last one

	fromLeft, fromRight uint64 // the words that were passed on last
	stored, taken       uint64 // pieces, as in the page
	bulk                ntb.Bulk
	private             []byte // a piece, at the ends of the chain
}

func newMember(m *shared, hops, index int) *member {
	return &member{shared: m, index: index, last: hops, private: ntb.AlignedBytes(barePiece)}
}

// startBare starts the others of a chain, and returns its first process, which is this one.
func startBare(b *testing.B, hops int) (first *member, forwarders []int) {
	m, f := newShared(b, bareSize(hops))
	for i := 1; i <= hops; i++ {
		p := startFor(b, "bare", []*os.File{f}, strconv.Itoa(hops), strconv.Itoa(i))
		if _, err := p.line(); err != nil {
			b.Fatal(err)
		}
		if i < hops {
			forwarders = append(forwarders, p.Process.Pid)
		}
	}
	return newMember(m, hops, 0), forwarders
}

// serveBare is the role of the others. Its arguments are the number of hops, and the process'
// own number.
func serveBare(args []string) error {
	var hops, index int
	if _, err := fmt.Sscan(args[0]+" "+args[1], &hops, &index); err != nil {
		return err
	}
	m, err := inherited(bareSize(hops))
	if err != nil {
		return err
	}
	exitWithParent()
	runtime.LockOSThread()
	p := newMember(m, hops, index)
	fmt.Println("ready")
	for {
		p.pass()
		for p.carry() {
		}
		yield()
	}
}

// yield offers the processor to other processes.
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// word returns the word at off in a process' page.
func (p *member) word(index, off int) uint64 { return ntb.Load64(p.b, index*pageSize+off) }

// publish stores a word in this process' page. It pairs with word.
func (p *member) publish(off int, v uint64) { p.out.Publish64(p.index*pageSize+off, v) }

// pass passes on the words that have come. The last process sends them back.
func (p *member) pass() {
	if v := p.word(p.index-1, rightward); v != p.fromLeft {
		p.fromLeft = v
		if p.index < p.last {
			p.publish(rightward, v)
		} else {
			p.publish(leftward, v)
		}
	}
	if p.index == p.last {
		return
	}
	if v := p.word(p.index+1, leftward); v != p.fromRight {
		p.fromRight = v
		p.publish(leftward, v)
	}
}

// slot returns where a piece is that process index stores for the next one.
func (p *member) slot(index int, piece uint64) []byte {
	at := (p.last+1)*pageSize + index*bareQueue + int(piece%bareSlots)*barePiece
	return p.b[at : at+barePiece]
}

// carry copies a piece from the process before to the next one, and reports whether there was
// one, and room for it.
func (p *member) carry() bool {
	if p.index > 0 && p.word(p.index-1, stored) == p.taken ||
		p.index < p.last && p.stored-p.word(p.index+1, taken) == bareSlots {
		return false
	}
	from := p.private
	if p.index > 0 {
		from = p.slot(p.index-1, p.taken)
	}
	if p.index < p.last {
		at := (p.last+1)*pageSize + p.index*bareQueue + int(p.stored%bareSlots)*barePiece
		p.bulk.Write(&p.out, at, from)
		p.stored++
		p.publish(stored, p.stored)
	} else {
		copy(p.private, from)
	}
	if p.index > 0 {
		p.taken++
		p.publish(taken, p.taken)
	}
	return true
}

// bareLatency measures a word along a chain and back, and bareThroughput pieces along it.
// Both return how many there were.
func bareLatency(b *testing.B, p *member) (n int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		n++
		p.publish(rightward, uint64(n))
		for p.word(1, leftward) != uint64(n) {
			yield()
		}
	}
	return n
}

func bareThroughput(b *testing.B, p *member) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.SetBytes(barePiece)
	for b.Loop() {
		for !p.carry() {
			yield()
		}
	}
	for p.word(p.last, taken) != p.stored {
		yield()
	}
	return int(p.stored)
}
