package bounce

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// testQueue is one direction without a link. Credit is passed when the test says
// so.
type testQueue struct {
	tx    sender
	rx    rx
	freed []queue
}

func newTestQueue(size int) *testQueue { return newQueueOf(ntb.Cacheable, size) }

func newQueueOf(kind ntb.MemoryKind, size int) *testQueue {
	q := &testQueue{}
	mem := ntb.AlignedBytes(size)
	q.rx.free = func(old queue) { q.freed = append(q.freed, old) }
	q.rx.start(queue{mem: mem})
	q.tx.init(ntb.MappedWindow(mem, kind), 1<<20, nil)
	return q
}

func (q *testQueue) credit(t *testing.T) {
	t.Helper()
	require.True(t, q.tx.send.Credit(q.rx.recv.Return()))
}

func (q *testQueue) grant(size int) []byte {
	mem := ntb.AlignedBytes(size)
	rand.NewChaCha8([32]byte{}).Read(mem) // what an earlier user left
	ntb.Clear64(mem, 0)
	q.rx.granted.add(queue{mem: mem})
	return mem
}

// A random walk of writes, reads, credits and moves carries every byte in order, as
// a plain byte slice would, for each kind of memory, size of queue, and many sizes of write.
func TestQueueAgreesWithByteSlice(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 1))
		kind := []ntb.MemoryKind{ntb.Cacheable, ntb.WriteCombining}[seed%2]
		q := newQueueOf(kind, minQueue<<rnd.IntN(4))
		q.tx.seq = ^uint32(0) - uint32(rnd.IntN(100)) // sequence numbers wrap
		q.rx.seq = q.tx.seq
		var want []byte // written and not read
		next := byte(0)
		big := 1 + rnd.IntN(3)
		moved := 0
		for range 4000 {
			switch rnd.IntN(8) {
			case 0, 1, 2, 3:
				n := 1 + rnd.IntN([]int{60, 300, 5000, 200000}[rnd.IntN(1+big)])
				p := make([]byte, n)
				for i := range p {
					p[i] = next + byte(i)
				}
				for range rnd.IntN(4) {
					from := rnd.IntN(n)
					clear(p[from:min(n, from+rnd.IntN(40))])
				}
				k := q.tx.put(p, len(p))
				require.LessOrEqual(t, k, n)
				require.GreaterOrEqual(t, q.tx.send.Room(), reserve, "seed %d: reserve touched", seed)
				next += byte(k)
				want = append(want, p[:k]...)
			case 4, 5, 6:
				p := make([]byte, 1+rnd.IntN(3000*big))
				n, err := q.rx.get(p)
				require.NoError(t, err, "seed %d", seed)
				require.Equal(t, n == 0, len(want) == 0, "seed %d: reader and writer disagree", seed)
				require.True(t, bytes.Equal(p[:n], want[:n]), "seed %d: wrong bytes", seed)
				want = want[n:]
				if rnd.IntN(2) == 0 && q.rx.gen == q.tx.gen {
					q.credit(t)
				}
			case 7:
				if rnd.IntN(50) == 0 {
					mem := q.grant(minQueue << rnd.IntN(5))
					q.tx.move(ntb.MappedWindow(mem, kind))
					moved++
					for len(want) > 0 {
						p := make([]byte, 4096)
						n, err := q.rx.get(p)
						require.NoError(t, err)
						require.NotZero(t, n)
						require.True(t, bytes.Equal(p[:n], want[:n]))
						want = want[n:]
					}
					n, err := q.rx.get(make([]byte, 1))
					require.NoError(t, err)
					require.Zero(t, n)
				}
			}
		}
		q.tx.fin()
		got, err := io.ReadAll(readerFunc(q.rx.get))
		require.NoError(t, err)
		require.True(t, bytes.Equal(got, want), "seed %d: wrong end", seed)
		require.Len(t, q.freed, moved)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A full queue still takes a pad, a FIN or a move.
func TestControlRecordsFitIntoAFullQueue(t *testing.T) {
	for n := 1; n < 3000; n += 7 {
		for _, end := range []string{"fin", "move"} {
			q := newTestQueue(minQueue)
			total := 0
			for {
				k := q.tx.put(make([]byte, n), n)
				if k == 0 {
					break
				}
				total += k
			}
			if end == "move" {
				q.tx.move(ntb.MappedWindow(q.grant(minQueue), ntb.Cacheable))
				q.tx.put([]byte("x"), 1)
				total++
			}
			q.tx.fin()
			got, err := io.ReadAll(readerFunc(q.rx.get))
			require.NoError(t, err)
			require.Len(t, got, total)
		}
	}
}

func TestWriterNeverOverwritesUnreadData(t *testing.T) {
	q := newTestQueue(minQueue)
	for q.tx.put([]byte("0123456789"), 10) > 0 {
	}
	require.GreaterOrEqual(t, q.tx.send.Room(), reserve)
	require.Zero(t, q.tx.put([]byte("more"), 4))
	p := make([]byte, 10)
	_, err := q.rx.get(p)
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(p))
}

func TestRecordsAreSmall(t *testing.T) {
	for n, want := range map[int]int{1: 64, 56: 64, 57: 128, 64: 128, 248: 256} {
		require.Equal(t, want, inlineSize(n), "payload %d", n)
	}
	require.Equal(t, 64+256, bulkSize(249))
}

// Whatever a peer writes into the queue, the reader stays inside of it and returns
// bytes, nothing or an error.
func FuzzReaderSurvivesAnyQueue(f *testing.F) {
	f.Add(uint64(makeHeader(1, 5, kindInline)), uint64(makeHeader(2, 100, kindBulk)), uint16(64), true)
	f.Add(uint64(makeHeader(1, 4096-64, kindPad)), uint64(makeHeader(2, 0, kindMove)), uint16(0), true)
	f.Add(uint64(makeHeader(1, 1<<24-1, kindBulk)), uint64(0), uint16(0), false)
	f.Add(^uint64(0), ^uint64(0), uint16(64), false)
	f.Add(uint64(makeHeader(1, 0, kindFIN)), uint64(0), uint16(0), false)
	f.Add(uint64(makeHeader(1, 56, kindSealed)), uint64(makeHeader(2, 0x7f<<8|200, kindSealed)), uint16(64), true)
	f.Fuzz(func(t *testing.T, h1, h2 uint64, at uint16, grant bool) {
		q := newTestQueue(minQueue)
		if grant {
			q.grant(minQueue)
		}
		w := ntb.MappedWindow(q.rx.mem, ntb.Cacheable)
		w.Publish64(0, h1)
		w.Publish64(int(at)%minQueue&^7, h2)
		p := make([]byte, 1000)
		for range 100 {
			n, err := q.rx.get(p)
			if n < 0 || n > len(p) {
				t.Fatalf("read %d bytes", n)
			}
			if err != nil || n == 0 {
				return
			}
		}
	})
}

func TestBadRecordsAreRefused(t *testing.T) {
	for name, h := range map[string]header{
		"sequence":         makeHeader(2, 5, kindInline),
		"empty inline":     makeHeader(1, 0, kindInline),
		"long inline":      makeHeader(1, maxInline+1, kindInline),
		"empty bulk":       makeHeader(1, 0, kindBulk),
		"bulk too long":    makeHeader(1, minQueue, kindBulk),
		"short pad":        makeHeader(1, 64, kindPad),
		"long pad":         makeHeader(1, minQueue, kindPad),
		"move not granted": makeHeader(1, 0, kindMove),
		"empty sealed":     makeHeader(1, 0, kindSealed),
		"long sealed":      makeHeader(1, maxInline+1, kindSealed),
		"unknown bits":     makeHeader(1, 1<<15|8, kindSealed),
		"unknown kind":     makeHeader(1, 1, 7),
		"kind zero":        makeHeader(1, 1, 0),
		"only more":        makeHeader(1, 1, moreBit),
		"more of a FIN":    makeHeader(1, 0, kindFIN|moreBit),
		"a dead bridge's":  header(^uint64(0)),
	} {
		q := newTestQueue(minQueue)
		w := ntb.MappedWindow(q.rx.mem, ntb.Cacheable)
		for i := headerSize; i < line; i += headerSize {
			w.Publish64(i, 1)
		}
		w.Publish64(0, uint64(h))
		_, err := q.rx.get(make([]byte, 10))
		require.ErrorIs(t, err, errBadRecord, name)
	}
}

// Behind the writer's position the memory resembles headers. That is what the clear
// is for: without it the reader would take old payload for a record.
func TestSuccessorIsClearedBeforeTheHeader(t *testing.T) {
	mem := ntb.AlignedBytes(minQueue)
	for i := 0; i < len(mem); i += 8 { // every word is a plausible header
		binary.LittleEndian.PutUint64(mem[i:], uint64(makeHeader(2, 1, kindInline)))
	}
	ntb.Clear64(mem, 0)
	q := &testQueue{}
	q.rx.start(queue{mem: mem})
	q.tx.init(ntb.MappedWindow(mem, ntb.Cacheable), 1<<20, nil)
	q.tx.put([]byte("a"), 1)
	n, err := q.rx.get(make([]byte, 10))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestBlocksAreDisjointAndReused(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	const total = 64<<20 - 12<<10
	b := newBlocks(5000, total)
	require.Equal(t, total-8192, b.total)
	type block struct{ off, size int }
	var live []block
	owner := make([]int, total/minQueue)
	for step := 1; step < 5000; step++ {
		if rnd.IntN(2) == 0 {
			size := minQueue << rnd.IntN(orders)
			off, ok := b.alloc(size)
			if !ok {
				continue
			}
			require.Zero(t, (off-8192)%size)
			require.LessOrEqual(t, off+size, total)
			require.GreaterOrEqual(t, off, 8192)
			for i := off / minQueue; i < (off+size)/minQueue; i++ {
				if owner[i] != 0 {
					t.Fatalf("step %d: block given twice", step)
				}
				owner[i] = step
			}
			live = append(live, block{off, size})
		} else if len(live) > 0 {
			i := rnd.IntN(len(live))
			x := live[i]
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			for i := x.off / minQueue; i < (x.off+x.size)/minQueue; i++ {
				owner[i] = 0
			}
			b.release(x.off, x.size)
		}
	}
	for _, x := range live {
		b.release(x.off, x.size)
	}
	require.Zero(t, b.used)
	n := 0
	for { // it all merged again
		if _, ok := b.alloc(maxQueue); !ok {
			break
		}
		n++
	}
	require.Equal(t, b.total/maxQueue, n)
}

// The words of a line may arrive in any order. A sealed record is there when all of its words are, and not before. Once it is
// read, the memory is as the next lap wants it.
func TestASealedRecordIsReadWhole(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 2*line; n++ {
		sent := make([]byte, n)
		for i := range sent {
			sent[i] = byte(rnd.Uint32())
		}
		for i := 0; i < n; i += 8 {
			if rnd.IntN(3) == 0 {
				clear(sent[i:min(n, i+8)])
			}
		}
		q := newQueueOf(ntb.WriteCombining, minQueue)
		q.tx.clean = minQueue
		require.Equal(t, n, q.tx.put(sent, n))
		arrived := bytes.Clone(q.rx.mem[:line])
		needed := 1
		for i := range sealedIn(n) {
			needed |= 2 << i
		}
		for words := range 1 << (line / headerSize) {
			for i := range line / headerSize {
				word := q.rx.mem[headerSize*i:][:headerSize]
				if clear(word); words>>i&1 != 0 {
					copy(word, arrived[headerSize*i:])
				}
			}
			require.Equal(t, words&needed == needed, q.rx.ready(), "payload of %d bytes, words %08b", n, words)
		}
		got := make([]byte, 2*n)
		k, err := q.rx.get(got)
		require.NoError(t, err)
		require.Equal(t, sent, got[:k])
		require.Equal(t, make([]byte, len(q.rx.mem)), q.rx.mem)
		require.False(t, q.rx.ready())
	}
}

// A stream of short records leaves a line for each once a queue was gone through, and no other words.
func TestAShortRecordIsOneLine(t *testing.T) {
	for n, want := range map[int][]int{8: {16}, 24: {64}, 56: {64}, 100: {64, 64}, 116: {64, 64}} {
		tape := &lines{mem: ntb.AlignedBytes(minQueue)}
		q := newTestQueue(minQueue)
		q.rx.mem = tape.mem
		q.tx.init(ntb.CombiningWindow(tape, minQueue), 1<<20, nil)
		q.tx.gen = 1
		for produced := 0; produced < 4*minQueue; produced += inlineSize(n) {
			tape.stores = nil
			require.Equal(t, n, q.tx.put(make([]byte, n), n))
			if produced >= minQueue {
				require.Equal(t, want, tape.stores, "%d bytes, at %d", n, produced)
			}
			k, err := q.rx.get(make([]byte, n))
			require.NoError(t, err)
			require.Equal(t, n, k)
			q.credit(t)
		}
	}
}

// lines is memory that records the lengths of stores.
type lines struct {
	mem    []byte
	stores []int
}

func (l *lines) Store(off int, p []byte) {
	copy(l.mem[off:], p)
	l.stores = append(l.stores, len(p))
}
func (l *lines) Store64(off int, v uint64) { l.Publish(off, v, 8) }
func (l *lines) Publish(off int, v uint64, _ int) {
	l.Store(off, binary.LittleEndian.AppendUint64(nil, v))
}
func (l *lines) Update(off int, v uint64, width int) { l.Publish(off, v, width) }
func (l *lines) Flush()                              {}
