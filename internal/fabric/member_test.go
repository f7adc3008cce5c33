package fabric

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/stretchr/testify/require"
)

// uplinkOf waits until a member's link has a state.
func uplinkOf(t *testing.T, f *Fabric, state string) (v status.Link) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		if v = f.status(false).Links[0]; v.State == state {
			return v
		}
		require.True(t, time.Now().Before(end), "want %s: %+v", state, v)
	}
}

func TestMembersComeAndGoAndOwnersToo(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		name := "ring:" + ownName(t)
		owners, members := name+"?nodes=3", name+"?spin=1us"
		a := mustNode(t, backend, members, 2)
		v := uplinkOf(t, a, status.Absent)
		require.Equal(t, status.Link{From: 2, To: 2, Direction: "up", State: status.Absent, Since: v.Since}, v)
		require.False(t, a.OwnsLinks())
		host, ok := a.FindNode("node16")
		require.True(t, ok, "nobody knows better")
		require.Equal(t, 16, host)

		for range 3 {
			owner := mustNode(t, backend, owners, 2)
			require.True(t, owner.OwnsLinks())
			b := mustNode(t, backend, members, 2)
			uplinkOf(t, a, status.Up)
			uplinkOf(t, b, status.Up)
			_, ok = a.FindNode("node4")
			require.False(t, ok)
			require.Eventually(t, func() bool { return len(membersOf(owner)) == 2 }, testTimeout, time.Millisecond)
			for i, f := range []*Fabric{a, b} {
				m := membersOf(owner)[i]
				require.Equal(t, status.Up, m.State)
				require.Contains(t, []int{a.node.ID().Process(), b.node.ID().Process()}, m.Process)
				// The link leads to the owner, so a dial needs no other.
				p, err := f.Peer(t.Context(), owner.node.ID(), nil)
				require.NoError(t, err)
				require.Len(t, f.node.Peers(), 1)
				require.False(t, p.Frames() != nil)
			}
			b.Close()
			require.Eventually(t, func() bool { return len(membersOf(owner)) == 1 }, testTimeout, time.Millisecond)
			owner.Close()
			uplinkOf(t, a, status.Absent)
		}
	})
}

func TestAMemberAndAnOwnerThatDoNotFit(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		name := ":" + ownName(t)
		// The directories of a ring and a line have the same names. The names of hubs
		// differ.
		if backend == "shm" {
			owner := mustNode(t, backend, "ring"+name+"?nodes=3", 2)
			_, err := openNode(backend, "line"+name+"?spin=1us", 2)
			require.ErrorIs(t, err, greeting.ErrMismatch)
			require.ErrorContains(t, err, `a "line"`)
			require.Positive(t, owner.Refused().Count)
			owner.Close()
		}
		// The member keeps what it has learnt.
		owner := mustNode(t, backend, "ring"+name+"?nodes=3&lanes=2", 2)
		member := mustNode(t, backend, "ring"+name+"?spin=1us", 2)
		uplinkOf(t, member, status.Up)
		owner.Close()
		other := mustNode(t, backend, "ring"+name+"?nodes=4&lanes=2", 2)
		v := uplinkOf(t, member, status.Down)
		require.Eventually(t, func() bool { return other.Refused().Count > 0 }, testTimeout, time.Millisecond)
		// The member may not know more yet than that the link to the first owner has
		// ended.
		require.Eventually(t, func() bool {
			v = uplinkOf(t, member, status.Down)
			return strings.Contains(v.Error, "nodes do not fit")
		}, testTimeout, time.Millisecond)
		for _, text := range []string{v.Error, other.Refused().Last} {
			require.Contains(t, text, "3 nodes, lanes=2")
			require.Contains(t, text, "4 nodes, lanes=2")
		}
		// Waiting would not help.
		_, err := member.Owner(t.Context(), 1)
		require.ErrorIs(t, err, greeting.ErrMismatch)
		other.Close()
		mustNode(t, backend, "ring"+name+"?nodes=3&lanes=2", 2)
		uplinkOf(t, member, status.Up)
	})
}

func TestOwnersOfOtherHostsAreFoundWhateverTheirNumber(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		for _, topology := range []string{"line", "mesh"} {
			name := topology + ":" + ownName(t)
			owners, members := name+"?nodes=3", name+"?spin=1us"
			a := mustNode(t, backend, members, 3)
			b := mustNode(t, backend, members, 3)
			last := mustNode(t, backend, owners, 3)
			first := mustNode(t, backend, owners, 1)
			middle := mustNode(t, backend, owners, 2)
			require.NotEqual(t, 1, last.node.ID().Process())
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			for _, f := range []*Fabric{first, middle} {
				p, err := f.Owner(ctx, 3)
				require.NoError(t, err)
				require.Equal(t, last.node.ID(), p.ID())
				for _, m := range []*Fabric{a, b} {
					p, err := f.Peer(ctx, m.node.ID(), nil)
					require.NoError(t, err)
					require.Equal(t, m.node.ID(), p.ID())
				}
			}
			p, err := a.Owner(ctx, 1)
			require.NoError(t, err)
			require.Equal(t, link.MakeID(1, 1), p.ID())
			for _, f := range []*Fabric{a, b, last, first, middle} {
				f.Close()
			}
		}
	})
}

// membersOf returns the links to members of a node that are up.
func membersOf(f *Fabric) (all []status.Link) {
	for _, l := range f.status(false).Links {
		if l.Direction == "down" {
			all = append(all, l)
		}
	}
	return all
}
