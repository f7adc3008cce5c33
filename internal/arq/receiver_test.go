package arq

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNextFrameOnlyIsTaken(t *testing.T) {
	for _, taken := range []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 2, 1<<32 - 1} {
		r := Receiver{taken: taken}
		require.Equal(t, taken+1, r.Expects())
		for d, want := range map[uint32]Verdict{
			0: Take, 1: Gap, 100: Gap, 1<<31 - 1: Gap, 1<<32 - 1: Duplicate, 1<<32 - 100: Duplicate,
		} {
			require.Equal(t, want, r.Judge(taken+1+d), "%d of %d", d, taken)
		}
		require.Equal(t, taken+1, r.Expects())
		r.Took()
		require.Equal(t, Duplicate, r.Judge(taken+1))
		require.Equal(t, Take, r.Judge(taken+2))
	}
}
