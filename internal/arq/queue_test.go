package arq

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
)

// Random bodies that are gathered, gone on with and forgotten are compared with slices.
func TestSeedsKeepBodiesWhole(t *testing.T) {
	explore.Seeds(t, 1000, func(seed uint64) (string, explore.Trace) {
		trace := explore.Begin(seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		q := queue{buf: make([]byte, 32+rng.IntN(100)), frames: make([]kept, 16)}
		size := 1 + rng.IntN(len(q.buf)/2)
		var want [][]byte
		b := byte(0)
		extend := func(body []byte) []byte {
			for n := rng.IntN(q.openMax - q.openLen + 1); n > 0; n-- {
				b++
				q.extend(1)[0] = b
				body = append(body, b)
			}
			return body
		}
		for range 200 {
			switch rng.IntN(4) {
			case 0:
				if fits := q.count < 16-bare && q.bytes() == 0; q.begin(size) {
					body := extend(nil)
					q.end()
					want = append(want, body)
				} else {
					require.False(t, fits, "seed %d: no room for %d in %d", seed, size, len(q.buf))
				}
			case 1:
				if need := 1 + rng.IntN(size); q.count > 0 && q.reopen(need, size) {
					require.GreaterOrEqual(t, q.openMax-q.openLen, need)
					last := len(want) - 1
					want[last] = extend(slices.Clone(want[last]))
					q.end()
				}
			case 2:
				if q.count < 16 {
					q.push(kept{kind: Data, asks: true})
					want = append(want, nil)
				}
			case 3:
				n := rng.IntN(q.count + 1)
				q.drop(n)
				want = want[n:]
			}
			trace.Note("queue", want)
			require.Len(t, want, q.count)
			for i, body := range want {
				require.Equal(t, string(body), string(q.body(q.at(i))), "seed %d", seed)
			}
		}
		return "", trace
	})
}

// A frame that was complete is known as such while its body is open again.
func TestAFrameIsReopenedUntilItEnds(t *testing.T) {
	now := time.Unix(0, 0)
	s := newSender(make([]byte, 256), 16)
	require.True(t, s.Begin(64))
	s.Extend(8)
	require.False(t, s.Reopened(), "it is new")
	s.EndFrame(now)
	require.True(t, s.Reopen(8, 64))
	require.True(t, s.Reopened())
	s.EndFrame(now)
	require.False(t, s.Reopened())
	require.True(t, s.Reopen(8, 64))
	s.clear()
	require.False(t, s.Reopened())
}

// bytes returns how many bytes the frames' bodies take.
func (q *queue) bytes() int {
	n := 0
	for i := range q.count {
		n += q.at(i).n
	}
	return n
}
