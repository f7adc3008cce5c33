package ring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// In a small window lanes have fewer slots, so that the direct peer has most of it.
func TestLanesOfASmallWindowHaveFewerSlots(t *testing.T) {
	for _, c := range []struct {
		lanes, slots, window, want int
	}{
		{1, 0, 16 << 20, DefaultSlots},
		{1, 0, 4 << 20, 15},
		{2, 0, 8 << 20, 15},
		{1, 0, 1 << 20, fewSlots},
		{8, 0, 16 << 20, fewSlots},
		{1, 64, 4 << 20, 15},
		{1, 4, 1 << 20, 4},
		{1, 64, 64 << 20, 64},
	} {
		o, err := Options{Hosts: 2, Lanes: c.lanes, Slots: c.slots}.withDefaults()
		require.NoError(t, err)
		l := o.in(c.window)
		require.Equal(t, c.want, l.Slots, "%+v", c)
		if l.Slots > fewSlots {
			require.LessOrEqual(t, l.lanesBytes()-lanesAt, c.window/4+4096, "%+v", c)
		}
	}
}
