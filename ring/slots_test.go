package ring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// In a small window lanes have fewer slots, so that the direct peer has most of it.
func TestLanesOfASmallWindowHaveFewerSlots(t *testing.T) {
	for _, c := range []struct {
		hosts, lanes, slots, window, want int
	}{
		{2, 1, 0, 16 << 20, DefaultSlots},
		{3, 1, 0, 4 << 20, 15},
		{2, 2, 0, 8 << 20, 15},
		{2, 1, 0, 2 << 20, 7},
		{3, 1, 0, 2 << 20, 8},
		{2, 1, 0, 1 << 20, 4},
		{3, 1, 0, 1 << 20, 8},
		{4, 8, 0, 16 << 20, 8},
		{2, 1, 64, 4 << 20, 15},
		{3, 1, 4, 1 << 20, 4},
		{2, 1, 64, 64 << 20, 64},
	} {
		o, err := Options{Hosts: c.hosts, Lanes: c.lanes, Slots: c.slots}.withDefaults()
		require.NoError(t, err)
		l := o.in(c.window)
		require.Equal(t, c.want, l.Slots, "%+v", c)
		if l.Slots > o.fewSlots() {
			require.LessOrEqual(t, l.lanesBytes()-lanesAt, c.window/4+4096, "%+v", c)
		}
	}
}
