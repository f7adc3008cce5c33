package bounce

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each phase follows the one before it, once.
func TestPhasesFollowEachOther(t *testing.T) {
	phases := []phase{phaseOpen, phaseClosed, phaseStopped, phaseRemoved}
	for i, from := range phases {
		for j, to := range phases {
			s := state{phase: from}
			require.Equal(t, j == i+1, s.advance(to), "%v to %v", from, to)
			if j == i+1 {
				require.Equal(t, to, s.phase)
			} else {
				require.Equal(t, from, s.phase)
			}
		}
	}
}

// Once the peer knows that nothing follows, nothing is added.
func TestNothingIsAddedToTheStateAfterStopped(t *testing.T) {
	var s state
	s.finish(true)
	word, changed := s.add(stateReadClosed)
	require.True(t, changed)
	require.EqualValues(t, stateReadClosed|stateFinished, word, "what was due goes with it")
	_, changed = s.add(stateReadClosed)
	require.False(t, changed, "the peer has it")
	require.True(t, s.advance(phaseClosed))
	require.True(t, s.left())
	require.True(t, s.advance(phaseStopped))
	_, changed = s.add(stateReset)
	require.False(t, changed)
}

// The end of a write lease is told of a FIN that Close or CloseWrite left to it, each time.
func TestTheEndOfAWriteLeaseFindsTheFINThatIsDue(t *testing.T) {
	var s state
	require.False(t, s.leaveTo(leaseWrite), "no lease is out")
	require.NoError(t, s.lease(leaseWrite))
	require.True(t, s.leaveTo(leaseWrite))
	require.False(t, s.unlease(leaseWrite), "a FIN is due")
	require.True(t, s.leaveTo(leaseWrite), "another call came meanwhile")
	require.False(t, s.unlease(leaseWrite))
	require.True(t, s.unlease(leaseWrite))
	require.Zero(t, s.leases)
	s.over.Or(stopClosed)
	require.ErrorIs(t, s.lease(leaseRead), ErrClosed)
}
