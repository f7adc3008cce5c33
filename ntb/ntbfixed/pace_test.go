package ntbfixed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Looks become rarer while they find nothing, up to a limit.
func TestLooksBecomeRarer(t *testing.T) {
	var p pace
	last, waited := firstLook, time.Duration(0)
	for last < idleLook {
		d := p.next(false)
		require.GreaterOrEqual(t, d, last)
		require.LessOrEqual(t, d, max(firstLook, waited/64), "a byte comes a 64th of the silence late")
		last, waited = d, waited+d
	}
	require.Equal(t, idleLook, p.next(false))
	require.Equal(t, firstLook, p.next(true))
	require.Equal(t, firstLook, p.next(false))
}
