package link

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// Both sides say both versions, whichever of them is the first to refuse.
func TestBothSidesOfALinkSayBothVersions(t *testing.T) {
	leak.Check(t)
	for _, c := range []struct {
		name    string
		version int
		spad    int
		up      func(dev ntb.Device, number int) error
	}{
		{"peer", Version, spadMagic, func(dev ntb.Device, number int) error {
			n := NewNode(MakeID(1, number))
			defer n.Close()
			_, err := n.Up(context.Background(), dev)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 {
				x, y := ntbmem.Pair(1 << 20)
				ended := make(chan error, 1)
				go func() { ended <- c.up(x, 1) }()
				theirs := c.up(nextVersion{y, c.spad}, 2)
				ours := <-ended
				require.ErrorIs(t, ours, ErrVersion)
				require.ErrorContains(t, ours, fmt.Sprintf("speaks %d, ", c.version))
				require.ErrorContains(t, ours, fmt.Sprint(" ", c.version+1))
				require.ErrorIs(t, theirs, ErrVersion)
				require.ErrorContains(t, theirs, fmt.Sprintf("speaks %d, ", c.version))
				require.ErrorContains(t, theirs, fmt.Sprint(" ", c.version-1))
			}
		})
	}
}

// A peer of another version that never says that it has seen this side, or says so of
// another epoch each time, is refused all the same.
func TestAPeerOfAnotherVersionKeepsNobody(t *testing.T) {
	leak.Check(t)
	for _, epochs := range []uint32{1, 2} {
		x, y := ntbmem.Pair(1 << 20)
		defer y.Close()
		y.SetPeerSpad(spadMagic, Magic<<16|(Version+1))
		n := NewNode(MakeID(1, 1))
		defer n.Close()
		ends(t, "Up", func() {
			_, err := n.Up(soon(t), &epochsOf{Device: x, n: epochs})
			require.ErrorIs(t, err, ErrVersion)
		})
	}
}

// A side that refuses waits for one that is slow, which then has the reason too.
func TestARefusalWaitsForASlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("it does not fit")
		run := func(dev ntb.Device, every time.Duration) error {
			defer dev.Close()
			x := Exchange{Device: dev, Words: []uint32{1, 0, 0}, Every: every, Check: func() error {
				if Absent(dev.Spad(0)) {
					return ErrNotYet
				}
				return why
			}}
			_, _, err := x.Run(t.Context())
			return err
		}
		a, b := ntbmem.Pair(MinWindow)
		slow := make(chan error)
		go func() { slow <- run(a, 9*time.Second) }()
		synctest.Wait() // it has found nothing, and looks again when the time comes
		require.ErrorIs(t, run(b, 5*time.Millisecond), why)
		require.ErrorIs(t, <-slow, why)
	})
}

// epochsOf is a device whose peer has one epoch after the other.
type epochsOf struct {
	ntb.Device
	n, looks uint32
}

func (d *epochsOf) Spad(i int) uint32 {
	if i != spadEpoch {
		return d.Device.Spad(i)
	}
	d.looks++
	return d.looks%d.n + 1
}
