package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// testTimeout is how long a test waits for what must happen.
const testTimeout = 60 * time.Second

func backends() []string {
	if runtime.GOOS == "linux" {
		return []string{"mem", "shm"}
	}
	return []string{"mem"}
}

func onBackends(t *testing.T, f func(t *testing.T, backend string)) {
	for _, b := range backends() {
		t.Run(b, func(t *testing.T) {
			leak.Check(t)
			f(t, b)
		})
	}
}

// ownName returns the name of a fabric that no other test uses. What the fabric leaves
// is removed with the test.
func ownName(t *testing.T) string {
	name := fmt.Sprintf("test-%d-%08x", os.Getpid(), rand.Uint32())
	t.Cleanup(func() {
		if err := spec.Remove(name); err != nil && !errors.Is(err, ntb.ErrNotSupported) && !t.Failed() {
			t.Error(err)
		}
	})
	return name
}

func nodeSpec(backend, plan string, node int) string {
	return fmt.Sprintf("%s&node=%d&backend=%s&window=131072", plan, node, backend)
}

func openNode(backend, plan string, node int) (*Fabric, error) {
	spec, err := spec.Parse(nodeSpec(backend, plan, node))
	if err != nil {
		return nil, err
	}
	return Open(spec, func(*Fabric) {})
}

func mustNode(t *testing.T, backend, plan string, node int) *Fabric {
	t.Helper()
	f, err := openNode(backend, plan, node)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// allUp waits until every link of the nodes is up, and is one link.
func allUp(t *testing.T, nodes ...*Fabric) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, f := range nodes {
			v := f.status(false)
			for _, l := range v.Links {
				if l.State != status.Up {
					return false
				}
			}
			if len(f.node.Peers()) != len(v.Links) {
				return false
			}
		}
		return true
	}, testTimeout, time.Millisecond)
}

func TestNodesStartInAnyOrder(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		for seed := range uint64(8) {
			r := rand.New(rand.NewPCG(seed, 0))
			topology := []string{"ring", "line", "mesh"}[seed%3]
			n := 2 + r.IntN(5)
			plan := fmt.Sprintf("%s:%s?nodes=%d", topology, ownName(t), n)
			nodes := make([]*Fabric, n)
			var wg sync.WaitGroup
			for _, i := range r.Perm(n) {
				pause := time.Duration(r.IntN(3)) * time.Millisecond
				wg.Go(func() {
					time.Sleep(pause)
					f, err := openNode(backend, plan, i+1)
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					nodes[i] = f
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			allUp(t, nodes...)
			// One node restarts, while the others look for it.
			i := r.IntN(n)
			nodes[i].Close()
			f, err := openNode(backend, plan, i+1)
			require.NoError(t, err, "seed %d", seed)
			nodes[i] = f
			allUp(t, nodes...)
			for _, f := range nodes {
				wg.Go(f.Close)
			}
			wg.Wait()
		}
	})
}

func TestALinkThatIsCutIsMadeAgain(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		plan := "ring:" + ownName(t) + "?nodes=3"
		a, b, c := mustNode(t, backend, plan, 1), mustNode(t, backend, plan, 2), mustNode(t, backend, plan, 3)
		for i := range 10 {
			allUp(t, a, b, c)
			p, err := []*Fabric{a, b}[i%2].Peer(t.Context(), link.MakeID(2-i%2, 1), nil)
			require.NoError(t, err)
			p.Fail(fmt.Errorf("cut %d", i))
			<-p.Done()
		}
		allUp(t, a, b, c)
		for _, l := range a.status(false).Links {
			if l.To == 2 {
				require.GreaterOrEqual(t, l.Ups, 11)
			} else {
				require.Equal(t, 1, l.Ups, "the other link was not touched")
			}
		}
	})
}

func TestOneNumberIsOneNode(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		plan := "ring:" + ownName(t) + "?nodes=3"
		a, b := mustNode(t, backend, plan, 1), mustNode(t, backend, plan, 2)
		_, err := openNode(backend, plan, 1)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.ErrorContains(t, err, "node1")
		require.ErrorContains(t, err, "runs already in process")
		// The node that runs has noticed the other one, and goes on.
		refused := a.Refused()
		require.EqualValues(t, 1, refused.Count)
		require.Contains(t, refused.Last, "node 1 runs already")
		require.Zero(t, b.Refused().Count)
		_, err = b.Peer(t.Context(), link.MakeID(1, 1), nil)
		require.NoError(t, err)
	})
}

func TestNodesThatDoNotFit(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		name := ":" + ownName(t)
		a := mustNode(t, backend, "ring"+name+"?nodes=3", 1)
		// Within a process, fabrics of other kinds have other names.
		other := map[string]string{"?nodes=5": "5 nodes", "?nodes=3&lanes=2": "lanes=2"}
		count := uint64(0)
		for plan, want := range other {
			_, err := openNode(backend, "ring"+name+plan, 2)
			require.ErrorIs(t, err, greeting.ErrMismatch, plan)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "3 nodes, lanes=1")
			// It may have found the newcomer, or the newcomer may have found it.
			refused := a.Refused()
			require.Greater(t, refused.Count, count)
			count = refused.Count
			// Which refusal is the last one depends on when each side compared.
			require.Contains(t, refused.Last, "nodes do not fit")
		}
		if backend == "shm" {
			_, err := openNode(backend, "line"+name+"?nodes=3", 3)
			require.ErrorIs(t, err, greeting.ErrMismatch)
			require.ErrorContains(t, err, `"line"`)
		}
		allFit := mustNode(t, backend, "ring"+name+"?nodes=3&slots=32&frame=67584", 2)
		_, err := allFit.Peer(t.Context(), link.MakeID(1, 1), nil)
		require.NoError(t, err)
	})
}

// greet sends a greeting to a node and returns its answer.
func greet(t *testing.T, f *Fabric, change func(*greeting.Message)) *greeting.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := f.registry.connect(ctx, f.Host(), 0)
	require.NoError(t, err)
	g := f.greeting(greeting.WantLink)
	g.Node = 2
	g.Wire = 1
	change(g)
	answer, release, err := greeting.Ask(ctx, c, g)
	require.NoError(t, err)
	release()
	c.Close()
	return answer
}

// pipeCable is a cable whose other end has gone.
type pipeCable struct{ cable }

func (pipeCable) SetDeadline(time.Time) error { return nil }
func (pipeCable) Write([]byte) (int, error)   { return 0, syscall.EPIPE }
func (pipeCable) Read([]byte) (int, error)    { return 0, io.EOF }
func (pipeCable) Close() error                { return nil }

// A process that ends before it is greeted has reset the cable, as one that ends thereafter.
func TestAProcessThatEndsBeforeItIsGreeted(t *testing.T) {
	_, _, err := greeting.Ask(t.Context(), pipeCable{}, &greeting.Message{})
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestANodeSaysWhatItRefuses(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		plan := "ring:" + ownName(t) + "?nodes=3"
		f := mustNode(t, backend, plan, 1)
		for want, change := range map[string]func(*greeting.Message){
			"version 2, the other in 9":     func(g *greeting.Message) { g.Version = 9 },
			"node 2 version 99":             func(g *greeting.Message) { g.Ring = 99 },
			"node 2 of a \"mesh\"":          func(g *greeting.Message) { g.Topology = "mesh" },
			"of 4 nodes":                    func(g *greeting.Message) { g.Nodes = 4 },
			"lanes=3":                       func(g *greeting.Message) { g.Lanes = 3 },
			"node 0 of 3":                   func(g *greeting.Message) { g.Node = 0 },
			"node 4 of 3":                   func(g *greeting.Message) { g.Node = 4 },
			"node 1 runs already":           func(g *greeting.Message) { g.Node = 1 },
			"no wire 2 from node 2":         func(g *greeting.Message) { g.Wire = 2 },
			"no wire 1 from node 3":         func(g *greeting.Message) { g.Node = 3 },
			"node 2 wants \"all\"":          func(g *greeting.Message) { g.Want = "all" },
			"node 2 wants \"process\"":      func(g *greeting.Message) { g.Want = greeting.WantProcess },
			"node 2 of a \"rrrrrrrr\" of 3": func(g *greeting.Message) { g.Topology = "rrrrrrrrrrrrrrrr" },
		} {
			before := f.Refused().Count
			answer := greet(t, f, change)
			require.Contains(t, answer.Refused, want)
			require.NotContains(t, answer.Refused, "rrrrrrrrr")
			err := f.greeting("").Verdict(answer)
			require.Error(t, err)
			if strings.Contains(want, "version") {
				require.ErrorContains(t, err, want)
			}
			require.Equal(t, before+1, f.Refused().Count)
			require.Contains(t, f.Refused().Last, want)
		}
		// A process that hangs up after it was accepted leaves nothing behind.
		require.Empty(t, greet(t, f, func(*greeting.Message) {}).Refused)
		b := mustNode(t, backend, plan, 2)
		_, err := b.Peer(t.Context(), link.MakeID(1, 1), nil)
		require.NoError(t, err)
	})
}

// One that is of another version may have other fields. It is only asked for its version.
func TestAnAnswerOfAnotherVersionIsRefusedWithBothNumbers(t *testing.T) {
	text := `{"version":9,"node":"north","refused":["no"]}`
	frame := greeting.Magic + string(rune(len(text))) + "\x00\x00\x00" + text
	answer, err := greeting.Read(strings.NewReader(frame), greeting.MaxAnswer)
	require.NoError(t, err)
	mine := planned(t, "ring:x?node=1&nodes=3").greeting(greeting.WantLink)
	err = mine.Verdict(answer)
	require.ErrorIs(t, err, greeting.ErrMismatch)
	require.ErrorContains(t, err, fmt.Sprintf("version %d, the other in 9", greeting.Version))
}

// A neighbour that breaks off half-way does not get in the way of its successor.
func TestGarbageInsteadOfAGreeting(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		plan := "ring:" + ownName(t) + "?nodes=2"
		f := mustNode(t, backend, plan, 1)
		for _, b := range []string{"", "n", "GET / HTTP/1.0\r\n\r\n", greeting.Magic + "\xff\xff\xff\xff", greeting.Magic + "\x02\x00\x00\x00[]", greeting.Magic + "\x02\x00\x00\x00{"} {
			c, err := f.registry.connect(t.Context(), 1, 0)
			require.NoError(t, err)
			if b != "" {
				_, _ = c.Write([]byte(b))
			}
			c.Close()
		}
		require.Eventually(t, func() bool { return f.Refused().Count == 3 }, testTimeout, time.Millisecond)
		allUp(t, f, mustNode(t, backend, plan, 2))
	})
}

// planned returns an owner that does nothing.
func planned(t testing.TB, text string) *Fabric {
	s, err := spec.Parse(text)
	require.NoError(t, err)
	h := &Fabric{spec: s}
	h.plan.Store(s)
	return h
}

func FuzzReadGreeting(f *testing.F) {
	g, err := json.Marshal(planned(f, "ring:x?node=1&nodes=3").greeting(greeting.WantLink))
	require.NoError(f, err)
	f.Add(g)
	f.Add([]byte(`{"version":2,"node":"x"}`))
	f.Add([]byte(`{"version":2,"snapshot":{"links":[{}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := append([]byte(greeting.Magic), byte(len(text)), byte(len(text)>>8), byte(len(text)>>16), 0)
		rest := append(append(b, text...), "files"...)
		r := &counter{b: rest}
		g, err := greeting.Read(r, greeting.MaxMessage)
		if err != nil {
			return
		}
		if left := len(rest) - r.n; left != len("files") {
			t.Fatalf("%d bytes left, want %d", left, len("files"))
		}
		mine := planned(t, "ring:x?node=1&nodes=3").greeting("")
		if mine.Fits(g) == nil && (g.Node < 1 || g.Node > 3 || g.Nodes != 3 && !(g.Member && g.Nodes == 0)) {
			t.Fatalf("accepted %+v", g)
		}
	})
}

// counter is a reader that counts bytes.
type counter struct {
	b []byte
	n int
}

func (c *counter) Read(b []byte) (int, error) {
	n := copy(b, c.b[c.n:])
	c.n += n
	return n, nil
}

// A dial of a neighbour at the very beginning waits for the link that is being made,
// rather than take another way for good. No machine is so slow that it waits for too short a time: time is virtual.
func TestANeighbourIsReachedDirectly(t *testing.T) {
	leak.Check(t)
	for range 20 {
		synctest.Test(t, dialNeighbours)
	}
}

func dialNeighbours(t *testing.T) {
	spec, err := spec.Parse("ring:x?node=1&nodes=4&backend=mem&spin=0")
	require.NoError(t, err)
	m := NewMemHosts(nil)
	all := make([]*Fabric, spec.Nodes)
	for i := range all {
		own := *spec
		own.Node = i + 1
		all[i], err = m.Open(&own, func(*Fabric) {})
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	for i, f := range all {
		for _, to := range []int{(i+1)%4 + 1, (i+3)%4 + 1} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
				defer cancel()
				p, err := f.peer(ctx, to, 0)
				if err != nil || p.Frames() != nil {
					t.Errorf("node %d to node %d: %v, routed: %v", i+1, to, err, err == nil)
				}
			})
		}
	}
	wg.Wait()
	for _, f := range all {
		f.Close()
	}
}

// Processes of one host have links and nothing else: no goroutine is in the room of hops.
func TestProcessesOfOneHostDoNotEnterRing(t *testing.T) {
	leak.Check(t)
	for _, backend := range backends() {
		if backend != "shm" {
			continue // a fabric of kind mem has one process
		}
		name := ownName(t)
		var both []*Fabric
		for range 2 {
			spec, err := spec.Parse("shm:" + name)
			require.NoError(t, err)
			f, err := Open(spec, func(*Fabric) {})
			require.NoError(t, err)
			t.Cleanup(f.Close)
			both = append(both, f)
		}
		p, err := both[0].Peer(t.Context(), both[1].Node().ID(), nil)
		require.NoError(t, err)
		require.True(t, p.Up())
		for _, f := range both {
			require.Nil(t, f.ring.Load())
			require.Empty(t, f.Tunnels())
		}
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		require.Contains(t, string(stacks), "ntbnet/internal/link.")
		require.NotContains(t, string(stacks), "ntbnet/ring.")
	}
}

// Two processes of one host greet each other: of two versions, each is told both.
func TestVersionsWithinAHostDiffer(t *testing.T) {
	for _, backend := range backends() {
		if backend != "shm" {
			continue // one process has one version
		}
		name := ownName(t)
		open := func() *Fabric {
			spec, err := spec.Parse("shm:" + name)
			require.NoError(t, err)
			f, err := Open(spec, func(*Fabric) {})
			require.NoError(t, err)
			t.Cleanup(f.Close)
			return f
		}
		a, b := open(), open()
		p, err := a.Peer(t.Context(), b.Node().ID(), nil)
		require.NoError(t, err)
		require.Equal(t, b.Node().ID(), p.ID())

		c, err := a.registry.connect(t.Context(), 1, b.Node().ID().Process())
		require.NoError(t, err)
		g := a.greeting(greeting.WantProcess)
		g.Version++
		answer, release, err := greeting.Ask(t.Context(), c, g)
		require.NoError(t, err)
		release()
		c.Close()
		require.ErrorContains(t, g.Verdict(answer), "version 3, the other in 2")
		require.Eventually(t, func() bool { return b.Refused().Count == 1 }, testTimeout, time.Millisecond)
		require.Contains(t, b.Refused().Last, "version 2, the other in 3")

		for _, want := range []string{greeting.WantLink, greeting.WantUplink, greeting.WantOwner, greeting.WantCheck} {
			c, err := a.registry.connect(t.Context(), 1, b.Node().ID().Process())
			require.NoError(t, err)
			g := a.greeting(want)
			g.Member = want == greeting.WantUplink
			answer, release, err := greeting.Ask(t.Context(), c, g)
			require.NoError(t, err)
			release()
			c.Close()
			require.NotEmpty(t, answer.Refused, want)
		}
	}
}
