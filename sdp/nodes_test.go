package sdp

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// cable is an end of a bridge that can be cut, and mended.
type cable struct {
	ntb.Attachment

	mu    sync.Mutex
	whole chan struct{} // closed while it is; guarded by mu
	last  ntb.Device    // guarded by mu
}

func (c *cable) Open(ctx context.Context) (ntb.Device, error) {
	c.mu.Lock()
	whole := c.whole
	c.mu.Unlock()
	select {
	case <-whole:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	dev, err := c.Attachment.Open(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = dev
	return dev, err
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = make(chan struct{})
	c.last.Disable()
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.whole)
}

// bridged opens the nodes of a ring with bridges, and returns the ends on their right.
func bridged(t *testing.T, n int) (all []*Fabric, rights []*cable) {
	lefts := make([]ntb.Attachment, n+1)
	rights = make([]*cable, n+1)
	for i := 1; i <= n; i++ {
		right, left := ntbattach.Ends(func() (a, b ntb.Device) { return ntbmem.Pair(2 << 20) })
		rights[i] = &cable{Attachment: right, whole: make(chan struct{})}
		rights[i].mend()
		lefts[i%n+1] = left
	}
	all = make([]*Fabric, n+1)
	for i := 1; i <= n; i++ {
		f, err := OpenWith(nodeSpec(t, "ring", "mem", i, n), Devices{Attach: func(w Wire) (ntb.Attachment, error) {
			if w.Side == SideRight {
				return rights[i], nil
			}
			return lefts[i], nil
		}})
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		all[i] = f
	}
	return all, rights
}

// watching is a Watch, and what its events say.
type watching struct {
	events chan Event
	nodes  map[int]Node
	log    []string
}

func watch(t *testing.T, f *Fabric) *watching {
	w := &watching{events: make(chan Event), nodes: map[int]Node{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range f.Watch(ctx) {
			select {
			case w.events <- e:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// until takes events until ok.
func (w *watching) until(t *testing.T, ok func(nodes map[int]Node) bool) {
	t.Helper()
	for late := time.After(time.Minute); !ok(w.nodes); {
		select {
		case e := <-w.events:
			w.nodes[e.Node.Number] = e.Node
			w.log = append(w.log, fmt.Sprintf("%v %+v", e.Type, e.Node))
		case <-late:
			require.Fail(t, "the events do not say it", "%q", w.log)
		}
	}
}

// whole reports whether all nodes of a ring are up, and all links.
func whole(n int) func(map[int]Node) bool {
	return func(nodes map[int]Node) bool {
		for i := 1; i <= n; i++ {
			if node := nodes[i]; !node.Up || node.Left != LinkUp || node.Right != LinkUp {
				return false
			}
		}
		return true
	}
}

// A link of a ring is cut, and mended: all four nodes see it, and that a node ends.
func TestAllNodesSeeACut(t *testing.T) {
	leak.Check(t)
	all, rights := bridged(t, 4)
	watchings := make([]*watching, 5)
	for i := 1; i <= 4; i++ {
		watchings[i] = watch(t, all[i])
		watchings[i].until(t, whole(4))
	}
	rights[2].cut()
	for _, w := range watchings[1:] {
		w.until(t, func(nodes map[int]Node) bool { return nodes[2].Right == LinkDown && nodes[3].Left == LinkDown })
	}
	watchings[2].until(t, func(nodes map[int]Node) bool { return nodes[3].Hops == 3 && nodes[3].Via == SideLeft })
	require.Equal(t, watchings[2].nodes[3], all[2].Nodes()[2])
	rights[2].mend()
	for _, w := range watchings[1:] {
		w.until(t, whole(4))
	}
	watchings[2].until(t, func(nodes map[int]Node) bool { return nodes[3].Hops == 1 && nodes[3].Via == SideRight })
	require.NoError(t, all[4].Close())
	for _, w := range watchings[1:4] {
		w.until(t, func(nodes map[int]Node) bool { return !nodes[4].Up && nodes[4].Left == LinkUnknown })
		require.Contains(t, w.log[len(w.log)-1], "down {Number:4")
	}
}

// Who looks late gets the difference.
func TestWatchYieldsTheDifference(t *testing.T) {
	leak.Check(t)
	all, rights := bridged(t, 4)
	next, stop := iter.Pull(all[1].Watch(t.Context()))
	defer stop()
	nodes := map[int]Node{}
	for !whole(4)(nodes) {
		e, ok := next()
		require.True(t, ok)
		nodes[e.Node.Number] = e.Node
	}
	quick := watch(t, all[1])
	quick.until(t, whole(4))
	for range 3 {
		rights[2].cut()
		quick.until(t, func(nodes map[int]Node) bool { return nodes[2].Right == LinkDown })
		rights[2].mend()
		quick.until(t, whole(4))
	}
	require.NoError(t, all[4].Close())
	for nodes[4].Up {
		e, ok := next()
		require.True(t, ok)
		require.Equal(t, LinkUp, map[int]LinkState{2: e.Node.Right, 3: e.Node.Left, 1: LinkUp, 4: LinkUp}[e.Node.Number], "%v", e)
		nodes[e.Node.Number] = e.Node
	}
}

// Watch ends with its context, its Fabric, or its loop.
func TestWatchEnds(t *testing.T) {
	leak.Check(t)
	f, err := Open("mem:" + fabrictest.Name(t))
	require.NoError(t, err)
	want := []Node{{Number: 1, Up: true, Left: LinkUnknown, Right: LinkUnknown}}
	require.Equal(t, want, f.Nodes())
	for e := range f.Watch(t.Context()) {
		require.Equal(t, Event{NodeUp, want[0]}, e)
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range f.Watch(ctx) {
		cancel()
	}
	for range f.Watch(ctx) {
		require.Fail(t, "an event after the end")
	}
	for range f.Watch(t.Context()) {
		go f.Close()
	}
	for range f.Watch(t.Context()) {
		require.Fail(t, "an event of a Fabric that is closed")
	}
}

// A member learns of the nodes when their owner has come.
func TestAMemberWatches(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		member, err := Open(fmt.Sprintf("line:%s?backend=%s&node=1&window=1048576&host2=storage2", fabrictest.Name(t), backend))
		require.NoError(t, err)
		t.Cleanup(func() { member.Close() })
		require.Len(t, member.Nodes(), 1)
		w := watch(t, member)
		w.until(t, func(nodes map[int]Node) bool { return nodes[1].Up })
		owner, other := node(t, "line", backend, 1, 2), node(t, "line", backend, 2, 2)
		w.until(t, func(nodes map[int]Node) bool {
			return nodes[2].Up && nodes[2].Hops == 2 && nodes[2].Via == SideRight && nodes[1].Right == LinkUp && nodes[1].Left == LinkNone
		})
		require.Equal(t, []string{"storage2"}, w.nodes[2].Names)
		// Network sdp dials the name.
		port := echoOn(t, other)
		for _, name := range []string{"storage2", "Storage2."} {
			c, err := member.Dial("sdp", name+":"+port)
			require.NoError(t, err)
			require.Equal(t, "node2:"+port, c.RemoteAddr().String())
			c.Close()
		}
		_, ok := member.stack.fabric.FindNode("storage2")
		require.False(t, ok, "network tcp would use the name")
		owner.Close()
		w.until(t, func(nodes map[int]Node) bool { return !nodes[2].Up })
	})
}
