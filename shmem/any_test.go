package shmem

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A caller that handles one element at a time must not leave any out for ever, even if it
// asks for several objects by turns.
func TestEachElementThatIsTrueComesUp(t *testing.T) {
	w, err := Open(context.Background(), PE(0, 1, "x"), HeapLimit(1<<20))
	require.NoError(t, err)
	defer w.Close(context.Background())
	s, err := AllocZeroed[int32](context.Background(), w, 7)
	require.NoError(t, err)
	other, err := AllocZeroed[int32](context.Background(), w, 7)
	require.NoError(t, err)
	want := map[int]bool{1: true, 2: true, 6: true}
	skip := make([]bool, s.Len())
	skip[4] = true
	values := make([]int32, s.Len())
	for i := range values {
		values[i] = 9
		if want[i] {
			s.Local()[i], values[i] = 5, 5
		}
	}
	s.Local()[4], values[4] = 5, 5 // but it is skipped
	other.Local()[0] = 5
	ctx := context.Background()
	wait := func(i int, err error) int {
		require.NoError(t, err)
		return i
	}
	for name, f := range map[string]func() int{
		"TestAny":            func() int { return TestAny(s, skip, Eq, 5) },
		"TestAnyVector":      func() int { return TestAnyVector(s, skip, Eq, values) },
		"WaitUntilAny":       func() int { return wait(WaitUntilAny(ctx, s, skip, Eq, 5)) },
		"WaitUntilAnyVector": func() int { return wait(WaitUntilAnyVector(ctx, s, skip, Eq, values)) },
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[int]bool{}
			for range 10_000 {
				require.Zero(t, TestAny(other, nil, Eq, 5))
				seen[f()] = true
				if len(seen) == len(want) {
					break
				}
			}
			require.Equal(t, want, seen)
		})
	}
}
