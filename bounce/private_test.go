package bounce

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// What is lent of a stranger's record stays as it was when it was lent first, in whatever
// pieces it is lent and read, although the stranger goes on changing all payload.
func TestAStrangersRecordIsLentOnce(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		q := newTestQueue(minQueue << rnd.IntN(5))
		q.rx.private.wanted = true
		var want []byte // written and not read
		kept := 0       // how many bytes of it were lent
		next := byte(0)
		for range 2000 {
			switch rnd.IntN(4) {
			case 0:
				p := make([]byte, 1+rnd.IntN([]int{60, 5000}[rnd.IntN(2)]))
				for i := range p {
					p[i] = next + byte(i)
				}
				k := q.tx.put(p, len(p))
				next += byte(k)
				want = append(want, p[:k]...)
			case 1:
				b, err := q.rx.view()
				require.NoError(t, err)
				require.True(t, bytes.Equal(want[:len(b)], b), "seed %d", seed)
				require.GreaterOrEqual(t, len(b), min(1, len(want)))
				require.GreaterOrEqual(t, len(b), kept, "seed %d: less is lent than before", seed)
				clear(q.rx.mem[q.rx.at : q.rx.at+len(b)]) // the stranger changes it
				kept = len(b)
				if n := rnd.IntN(len(b) + 1); n > 0 {
					q.rx.taken(n)
					want, kept = want[n:], kept-n
				}
				require.Equal(t, kept, q.rx.lent())
			case 2:
				p := make([]byte, 1+rnd.IntN(3000))
				n, err := q.rx.get(p)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want[:n], p[:n]), "seed %d", seed)
				want, kept = want[n:], max(0, kept-n)
			case 3:
				q.rx.private.release()
				if q.rx.gen == q.tx.gen {
					q.credit(t)
				}
			}
		}
		got, err := io.ReadAll(readerFunc(func(p []byte) (int, error) {
			n, err := q.rx.get(p)
			if n == 0 && err == nil {
				err = io.EOF
			}
			return n, err
		}))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "seed %d: wrong end", seed)
	}
}

// A stranger may make records as large as a queue. That many bytes are not copied at a time.
func TestALargeRecordOfAStrangerIsLentInPieces(t *testing.T) {
	q := newTestQueue(1 << 20)
	q.rx.private.wanted = true
	p := make([]byte, 300_000)
	rand.NewChaCha8([32]byte{3}).Read(p)
	q.tx.win.Write(line, p)
	q.tx.kind = kindBulk
	q.tx.commit(len(p), len(p))
	for len(p) > 0 {
		b, err := q.rx.view()
		require.NoError(t, err)
		require.Len(t, b, min(len(p), maxPiece))
		require.True(t, bytes.Equal(p[:len(b)], b))
		q.rx.taken(len(b))
		p = p[len(b):]
	}
	b, err := q.rx.view()
	require.NoError(t, err)
	require.Empty(t, b)
}

// strange is a device whose other end may be of another user.
type strange struct{ ntb.Device }

func (s strange) Caps() ntb.Caps {
	c := s.Device.Caps()
	c.Untrusted = true
	return c
}

func TestLeasesOfAStrangersRecordsDoNotAllocate(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	a, b := ntbmem.Pair(8 << 20)
	pa, pb := linkPools(t, a, strange{b}, spinning)
	from, to := connect(t, pa, pb)
	p := make([]byte, 8<<10)
	n := testing.AllocsPerRun(1000, func() {
		from.Write(p)
		for left := len(p); left > 0; {
			b, err := to.Peek()
			require.NoError(t, err)
			left -= len(b)
			to.Discard(len(b))
		}
	})
	require.Zero(t, n)
}

func TestAReaderInTheQueueHasNoBuffer(t *testing.T) {
	a, b := ntbmem.Pair(8 << 20)
	pa, pb := linkPools(t, a, strange{b}, spinning)
	from, to := connect(t, pa, pb)
	from.Write([]byte("hello"))
	got, err := to.Peek()
	require.NoError(t, err)
	to.Discard(len(got))
	require.NotNil(t, to.r.rx.private.buf)
	to.r.waiter.spinner.Join(new(wait.Queue), to.r.waiter.wake)
	require.Equal(t, wait.None, to.r.waiter.takeTurn(), "the queue is closed")
	require.Nil(t, to.r.rx.private.buf)
}
