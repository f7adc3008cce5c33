package ring

import (
	"context"
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// linkUp brings a link up in a ring of three, at its left or right end.
func linkUp(dev ntb.Device, number int) error {
	n, err := Join(link.NewNode(link.MakeID(number, 1)), small(3))
	if err != nil {
		return err
	}
	defer n.Close()
	_, err = n.Link(context.Background(), dev, []Direction{Right, Left}[number-1])
	return err
}

// The errors of both sides have both versions, whichever of them is the first to refuse.
func TestBothSidesOfLanesSayBothVersions(t *testing.T) {
	leak.Check(t)
	for _, c := range []struct {
		name    string
		version int
		spad    int
		one     uint32
	}{
		{"lanes", frame.Version, linkMagicSpad, 1},
		{"peer behind lanes", link.Version, linkLanesSpad, 1 << 24},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 {
				x, y := ntbmem.Pair(1 << 20)
				ended := make(chan error, 1)
				go func() { ended <- linkUp(x, 1) }()
				theirs := linkUp(nextVersion{y, c.spad, c.one}, 2)
				ours := <-ended
				require.ErrorIs(t, ours, link.ErrVersion)
				require.ErrorContains(t, ours, fmt.Sprintf("speaks %d, ", c.version))
				require.ErrorContains(t, ours, fmt.Sprint(" ", c.version+1))
				require.ErrorIs(t, theirs, link.ErrVersion)
				require.ErrorContains(t, theirs, fmt.Sprintf("speaks %d, ", c.version))
				require.ErrorContains(t, theirs, fmt.Sprint(" ", c.version-1))
			}
		})
	}
}
