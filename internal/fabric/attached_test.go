package fabric

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"github.com/ntbnet/ntbnet/ntb/ntbivshmem"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/ring"
	"github.com/stretchr/testify/require"
)

// bridgesOf are the wires of a fabric between machines that have nothing else in common. The
// attachments last longer than the processes that use them one after the other.
type bridgesOf struct {
	make func() (a, b ntb.Attachment, err error)

	mu   sync.Mutex
	ends map[int][2]ntb.Attachment // by number of the wire; guarded by mu
}

func newBridges(t *testing.T, make func() (a, b ntb.Attachment, err error)) *bridgesOf {
	w := &bridgesOf{make: make, ends: map[int][2]ntb.Attachment{}}
	t.Cleanup(func() {
		for _, ends := range w.ends {
			require.NoError(t, errors.Join(ends[0].Close(), ends[1].Close()))
		}
	})
	return w
}

// borrowed is an attachment that another process may use next: Close only ends its session.
type borrowed struct {
	ntb.Attachment

	mu   sync.Mutex
	last ntb.Device // guarded by mu; nil if there is none
}

func (b *borrowed) Open(ctx context.Context) (ntb.Device, error) {
	dev, err := b.Attachment.Open(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = dev
	return dev, err
}

func (b *borrowed) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last != nil {
		b.last.Disable()
	}
	return nil
}

// end returns the end of a wire that is on this side of a node.
func (w *bridgesOf) end(number int, side spec.Side) (ntb.Attachment, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ends, ok := w.ends[number]
	if !ok {
		a, b, err := w.make()
		if err != nil {
			return nil, err
		}
		ends = [2]ntb.Attachment{a, b}
		w.ends[number] = ends
	}
	if side == spec.Right {
		return &borrowed{Attachment: ends[0]}, nil
	}
	return &borrowed{Attachment: ends[1]}, nil
}

// machine opens a node on a machine of its own: no directory, and so no socket, leads to any
// other node.
func (w *bridgesOf) machine(t *testing.T, plan string, nodes, node int, options string) *Fabric {
	t.Helper()
	s, err := spec.Parse(fmt.Sprintf("%s:test?nodes=%d&node=%d&backend=mem&window=131072%s", plan, nodes, node, options))
	require.NoError(t, err)
	s.Attach = func(wire spec.Wire) (ntb.Attachment, error) {
		require.Equal(t, node, wire.Node)
		return w.end(wire.Number, wire.Side)
	}
	f, err := NewMemHosts(nil).Open(s, func(*Fabric) {})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// onBridges runs f with bridges whose sessions have fresh memory, and with such that have the
// same for ever.
func onBridges(t *testing.T, f func(t *testing.T, w *bridgesOf)) {
	const window = 2 << 20
	t.Run("mem", func(t *testing.T) {
		leak.Check(t)
		f(t, newBridges(t, func() (a, b ntb.Attachment, err error) {
			a, b = ntbattach.Ends(func() (a, b ntb.Device) { return ntbmem.Pair(window) })
			return a, b, nil
		}))
	})
	t.Run("fixed", func(t *testing.T) {
		dir := t.TempDir()
		if a, b, err := fixedEnds(dir, window); errors.Is(err, ntb.ErrNotSupported) {
			t.Skip(err)
		} else {
			require.NoError(t, errors.Join(err, a.Close(), b.Close()))
		}
		leak.Check(t)
		f(t, newBridges(t, func() (a, b ntb.Attachment, err error) { return fixedEnds(dir, window) }))
	})
}

// fixedEnds returns the ends of a bridge whose memory is that of a file in a directory.
func fixedEnds(dir string, window int) (a, b ntb.Attachment, err error) {
	f, err := os.CreateTemp(dir, "memory")
	if err == nil {
		err = errors.Join(f.Truncate(int64(2*(window+ntbfixed.PageSize))), f.Close())
	}
	if err == nil {
		a, err = ntbivshmem.AttachFile(f.Name(), ntbivshmem.Place{Places: 2, Own: 0, Peer: 1})
	}
	if err == nil {
		b, err = ntbivshmem.AttachFile(f.Name(), ntbivshmem.Place{Places: 2, Own: 1, Peer: 0})
	}
	return a, b, err
}

// linksUp waits until every link of the nodes is up.
func linksUp(t *testing.T, nodes []*Fabric) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, f := range nodes {
			for _, l := range f.status(false).Links {
				if l.State != status.Up {
					return false
				}
			}
		}
		return true
	}, testTimeout, time.Millisecond)
}

// each waits until every node reaches each other one, by a link or over others.
func each(t *testing.T, nodes []*Fabric) {
	t.Helper()
	for _, f := range nodes {
		for _, to := range nodes {
			if f == to {
				continue
			}
			require.Eventually(t, func() bool {
				p, err := f.Owner(t.Context(), to.Host())
				return err == nil && p.Up() && p.ID() == link.MakeID(to.Host(), 1)
			}, testTimeout, time.Millisecond, "%d to %d", f.Host(), to.Host())
		}
	}
}

// Machines are joined by their bridges and by nothing else. Links come up in any order, go
// down, and come up again after a cut and after a restart.
func TestLinksWithoutSockets(t *testing.T) {
	onBridges(t, func(t *testing.T, w *bridgesOf) {
		for _, plan := range []string{spec.TopologyRing, spec.TopologyLine} {
			const n = 3
			w.ends = map[int][2]ntb.Attachment{}
			nodes := make([]*Fabric, n)
			for _, i := range rand.Perm(n) {
				nodes[i] = w.machine(t, plan, n, i+1, "")
			}
			all := w.ends
			linksUp(t, nodes)
			each(t, nodes)
			for range 3 {
				ups := nodes[0].status(false).Links[0].Ups
				require.Positive(t, nodes[0].cut(nodes[0].status(false).Links[0].To))
				require.Eventually(t, func() bool { return nodes[0].status(false).Links[0].Ups > ups }, testTimeout, time.Millisecond)
				linksUp(t, nodes)
			}
			each(t, nodes)
			nodes[1].Close()
			nodes[1] = w.machine(t, plan, n, 2, "")
			linksUp(t, nodes)
			each(t, nodes)
			for _, f := range nodes {
				f.Close()
			}
			for _, ends := range all {
				require.NoError(t, errors.Join(ends[0].Close(), ends[1].Close()))
			}
		}
		w.ends = nil
	})
}

// What a node has sent to one that is not its neighbour arrives before the bridges are given back:
// here, that it ends.
func TestANodeTakesItsLeaveBeforeItsBridgesEnd(t *testing.T) {
	onBridges(t, func(t *testing.T, w *bridgesOf) {
		var nodes []*Fabric
		for i := range 3 {
			nodes = append(nodes, w.machine(t, spec.TopologyLine, 3, i+1, ""))
		}
		linksUp(t, nodes)
		each(t, nodes)
		p, err := nodes[2].Owner(t.Context(), 1)
		require.NoError(t, err)
		nodes[0].Close()
		select {
		case <-p.Done():
		case <-time.After(testTimeout):
			t.Fatal("the end is not found")
		}
		require.NotErrorIs(t, p.Err(), ring.ErrUnreachable, "it was not sent, or is lost")
	})
}

// Without a greeting the link's own bring-up finds out that two nodes do not fit, and both
// say so.
func TestMismatchesWithoutSocketsAreRefusedOnBothSides(t *testing.T) {
	onBridges(t, func(t *testing.T, w *bridgesOf) {
		a := w.machine(t, spec.TopologyLine, 2, 1, "&lanes=1")
		b := w.machine(t, spec.TopologyLine, 2, 2, "&lanes=2")
		for _, f := range []*Fabric{a, b} {
			require.Eventually(t, func() bool {
				v := f.status(false)
				return v.Refused > 0 && strings.Contains(v.LastRefusal, "lanes") &&
					v.Links[0].State != status.Up && strings.Contains(v.Links[0].Error, "lanes")
			}, testTimeout, time.Millisecond)
		}
	})
}

// The two wires of a ring of two nodes are not exchanged unnoticed.
func TestExchangedWiresAreRefused(t *testing.T) {
	onBridges(t, func(t *testing.T, w *bridgesOf) {
		a := w.machine(t, spec.TopologyRing, 2, 1, "")
		w.mu.Lock()
		w.ends[1], w.ends[2] = w.ends[2], w.ends[1]
		w.ends[1] = [2]ntb.Attachment{w.ends[1][1], w.ends[1][0]}
		w.ends[2] = [2]ntb.Attachment{w.ends[2][1], w.ends[2][0]}
		w.mu.Unlock()
		b := w.machine(t, spec.TopologyRing, 2, 2, "")
		for _, f := range []*Fabric{a, b} {
			require.Eventually(t, func() bool {
				return strings.Contains(f.Refused().Last, "direction of the link")
			}, testTimeout, time.Millisecond)
		}
	})
}

// A neighbour that did not fit and has gone is not the reason for ever: the next one may fit, and a
// dial waits for it.
func TestARefusalEndsWithTheNeighbour(t *testing.T) {
	onBridges(t, func(t *testing.T, w *bridgesOf) {
		a := w.machine(t, spec.TopologyLine, 2, 1, "")
		b := w.machine(t, spec.TopologyLine, 2, 2, "&lanes=2")
		_, err := a.Owner(t.Context(), 2)
		require.ErrorIs(t, err, ring.ErrMismatch)
		b.Close()
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := a.Owner(ctx, 2)
			return !errors.Is(err, ring.ErrMismatch)
		}, testTimeout, time.Millisecond)
		b = w.machine(t, spec.TopologyLine, 2, 2, "")
		linksUp(t, []*Fabric{a, b})
	})
}

// A link that goes down, and one that comes back, are logged once each. That a node ends is not.
func TestALinkThatGoes(t *testing.T) {
	onBridges(t, func(t *testing.T, w *bridgesOf) {
		a := w.machine(t, spec.TopologyLine, 2, 1, "")
		b := w.machine(t, spec.TopologyLine, 2, 2, "")
		linksUp(t, []*Fabric{a, b})
		lines := logged(t) // from here on
		b.Close()
		require.Eventually(t, func() bool { return strings.Contains(lines(), "the link has gone down") }, testTimeout, time.Millisecond)
		b = w.machine(t, spec.TopologyLine, 2, 2, "")
		linksUp(t, []*Fabric{a, b})
		require.Eventually(t, func() bool { return strings.Contains(lines(), "the link has come up") }, testTimeout, time.Millisecond)
		require.Equal(t, 1, strings.Count(lines(), "the link has gone down"), lines())
		b.Close()
		require.Eventually(t, func() bool { return strings.Count(lines(), "the link has gone down") > 1 }, testTimeout, time.Millisecond)
		a.Close()
		require.Equal(t, 2, strings.Count(lines(), `level=WARN msg="fabric: the link has gone down" to=node2 reason=`), lines())
		require.Equal(t, 1, strings.Count(lines(), `level=INFO msg="fabric: the link has come up" to=node2`), lines())
		require.NotContains(t, lines(), "down to=node1", "the node's own end is no loss")
	})
}

// logged returns what is logged from now on, without its time.
func logged(t *testing.T) func() string {
	var mu sync.Mutex
	var b strings.Builder
	before, written := slog.Default(), log.Writer()
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	}), &slog.HandlerOptions{ReplaceAttr: noTime})))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(written) // which the other default has redirected to itself
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// There is nobody to ask whether the neighbour runs, so a dial waits for its time.
func TestANeighbourThatDoesNotCome(t *testing.T) {
	onBridges(t, func(t *testing.T, w *bridgesOf) {
		a := w.machine(t, spec.TopologyLine, 2, 1, "")
		require.Eventually(t, func() bool { return a.status(false).Links[0].State == status.Making }, testTimeout, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := a.Owner(ctx, 2)
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "no process of node2 has come to its end of the bridge")
	})
}

func TestAWireThatCannotBeAttached(t *testing.T) {
	leak.Check(t)
	s, err := spec.Parse("line:test?nodes=2&node=1&backend=mem")
	require.NoError(t, err)
	why := errors.New("no such function")
	s.Attach = func(spec.Wire) (ntb.Attachment, error) { return nil, why }
	_, err = NewMemHosts(nil).Open(s, func(*Fabric) {})
	require.ErrorIs(t, err, why)
}
