package fabric

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
	"github.com/stretchr/testify/require"
)

func memNode(t *testing.T, m *MemHosts, node int) *Fabric {
	t.Helper()
	spec, err := spec.Parse("mesh:x?node=1&nodes=2&backend=mem&window=131072&spin=0")
	require.NoError(t, err)
	spec.Node = node
	f, err := m.Open(spec, func(*Fabric) {})
	require.NoError(t, err)
	return f
}

// cut takes the links to a neighbour down, as if their cables were cut. They are made again. It returns how many were up.
func (f *Fabric) cut(host int) int {
	var up []*ring.Link
	f.mu.Lock()
	for _, l := range f.links {
		if l.to == host && l.up() {
			up = append(up, l.ring)
		}
	}
	f.mu.Unlock()
	for _, l := range up {
		l.Close() // which may be said to the neighbour
	}
	return len(up)
}

func TestANodeThatWasKilledHasASuccessorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made [][2]int
		m := NewMemHosts(func(from, to int, a, b ntb.Device) (ntb.Device, ntb.Device) {
			made = append(made, [2]int{from, to})
			return a, b
		})
		first, old := memNode(t, m, 1), memNode(t, m, 2)
		defer first.Close()
		p, err := first.peer(t.Context(), 2, 0)
		require.NoError(t, err)
		require.Equal(t, link.MakeID(2, 1), p.ID())
		_, err = old.ClaimPort(7)
		require.NoError(t, err)

		m.Kill(2)
		// What is left of the killed node reaches no other.
		_, err = old.registry.connect(t.Context(), 1, 0)
		require.Error(t, err)
		first.cut(2)
		second := memNode(t, m, 2)
		defer second.Close()
		_, err = second.ClaimPort(7)
		require.NoError(t, err)
		old.Close() // does not drop the successor's claims
		_, held, err := second.Holder(7)
		require.NoError(t, err)
		require.True(t, held)
		p, err = first.peer(t.Context(), 2, 0)
		require.NoError(t, err)
		require.True(t, p.Up())
		require.Len(t, made, 2)
	})
}

// The wait for a link ends at once when the fabric is closed. A dial that went on
// waiting would spin.
func TestADialInAClosedFabricEndsAtOnce(t *testing.T) {
	ended := make(chan struct{}) // also the bubble, which may not outlive the test
	var dialled error
	go func() {
		defer close(ended)
		synctest.Test(t, func(t *testing.T) {
			m := NewMemHosts(nil)
			f := memNode(t, m, 1)
			f.Close()
			other, err := m.open(2, true) // runs, and accepts nothing
			require.NoError(t, err)
			defer other.close()
			_, dialled = f.peer(context.Background(), 2, 0)
		})
	}()
	select {
	case <-ended:
		require.ErrorIs(t, dialled, ErrClosed)
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end: the bubble's clock stands still while it spins")
	}
}
