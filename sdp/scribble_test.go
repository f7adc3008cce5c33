//go:build !race

package sdp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// Variables of a long run: how many stores, and the seed of an earlier one. A seed
// chooses the same stores, but at other moments.
//
//	NTBNET_SCRIBBLE=100000000 go test ./sdp -run TestScribbl -timeout 120m
const (
	envScribble     = "NTBNET_SCRIBBLE"
	envScribbleSeed = "NTBNET_SCRIBBLE_SEED"
)

// scribbleStores returns how many stores each of the tests makes.
func scribbleStores(t *testing.T) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(envScribble), 10, 64); err == nil {
		return n
	}
	if testing.Short() {
		return 100_000
	}
	return 300_000
}

func scribbleSeed(t *testing.T) uint64 {
	seed, err := strconv.ParseUint(os.Getenv(envScribbleSeed), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	fmt.Printf("%s: %s=%d\n", t.Name(), envScribbleSeed, seed) // not by t, which a crash would silence
	return seed
}

// bridges make bridges within this process, in place of the one between a and b.
var bridges = map[string]func(a, b ntb.Device) (ntb.Device, ntb.Device){
	"mem": func(a, b ntb.Device) (ntb.Device, ntb.Device) { return a, b },
}

// lasting is a device whose memory stays when a stack closes it, since its peer goes on
// storing.
type lasting struct {
	ntb.Device
	closed atomic.Bool
}

func (d *lasting) Close() error { d.closed.Store(true); d.Disable(); return nil }

func (d *lasting) WaitDoorbell(bit int) error {
	err := d.Device.WaitDoorbell(bit)
	if d.closed.Load() {
		return ntb.ErrClosed
	}
	return err
}

// scribbled are the bridges between host 2, the victim, and host 3, which scribbles. In a
// line of four, host 1 is a bystander, and host 4 is behind host 3.
type scribbled struct {
	make func(a, b ntb.Device) (ntb.Device, ntb.Device)

	mu    sync.Mutex
	pairs []*lastingPair // the newest last; guarded by mu
}

type lastingPair struct {
	ends   [2]*lasting
	known  bool    // the ends are identified; their own words about that are scribbled on later
	victim *victim // nil if it joins other hosts
}

func (s *scribbled) wrap(a, b ntb.Device) (ntb.Device, ntb.Device) {
	x, y := s.make(a, b)
	p := &lastingPair{ends: [2]*lasting{{Device: x}, {Device: y}}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pairs = append(s.pairs, p)
	return p.ends[0], p.ends[1]
}

// latest returns where to scribble now: the newest bridge, or at times the one before,
// which may be cut. It closes bridges that are not used any more.
func (s *scribbled) latest(before bool) *victim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*victim
	var kept []*lastingPair
	for i := len(s.pairs) - 1; i >= 0; i-- {
		p := s.pairs[i]
		p.identify()
		switch {
		case p.victim != nil && len(found) < 2:
			found = append(found, p.victim)
		case p.ends[0].closed.Load() && p.ends[1].closed.Load():
			p.close()
			continue
		}
		kept = append(kept, p)
	}
	slices.Reverse(kept)
	s.pairs = kept
	switch {
	case len(found) == 0:
		return nil
	case before && len(found) > 1:
		return found[1]
	}
	return found[0]
}

// identify finds host 2's end of a bridge to host 3, by the ids that hosts store at each
// other.
func (p *lastingPair) identify() {
	if p.known {
		return
	}
	ids := [2]uint32{p.ends[1].Spad(1), p.ends[0].Spad(1)} // each end reads the other's
	p.known = ids[0] != 0 && ids[1] != 0 && ids[0] != ^uint32(0)
	for x := range 2 {
		if p.known && ids[x]>>16 == 2 && ids[1-x]>>16 == 3 {
			p.victim = &victim{
				dev: p.ends[1-x].Device, in: p.ends[x].Inbound(), out: p.ends[1-x].Outbound(),
				lanes: 0x2000, slots: 2, slot: 64 + 512,
			}
		}
	}
}

func (p *lastingPair) close() {
	for _, d := range p.ends {
		d.Device.Close()
	}
}

func (s *scribbled) close() {
	for _, p := range s.pairs {
		p.close()
	}
}

// within30 panics, with all stacks, if a call takes longer than any may.
func within30(what string) func() bool {
	return time.AfterFunc(30*time.Second, func() { panic(what + " does not return") }).Stop
}

// Whatever a peer stores where it can store, before and after the end of the link, this
// side goes on. Its calls return, and its connections with other hosts are intact. The
// peer is a neighbour that forwards too.
func TestScribblingNeighbour(t *testing.T) {
	for name, bridge := range bridges {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			scribble(t, scribbleStores(t), scribbleSeed(t), &scribbled{make: bridge})
		})
	}
}

func scribble(t *testing.T, stores, seed uint64, on *scribbled) {
	spec, err := spec.Parse("line:scribble?backend=mem&node=1&nodes=4&window=131072&slots=2&frame=512")
	require.NoError(t, err)
	var hosts []*Fabric
	_, err = fabrictest.OpenNodes(spec, on.wrap, func(f *fabric.Fabric) {
		s := newStack(bounce.Options{Spin: -1})
		s.fabric, s.refs = f, 1
		s.start(f)
		hosts = append(hosts, newFabric(s, &networkCounters{}))
	})
	require.NoError(t, err)
	defer on.close()
	var ports []string
	for _, joined := range hosts {
		ports = append(ports, scribbleEcho(t, joined))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	bystander := &bystander{t: t, h: hosts[1], address: "node1:" + ports[0]}
	workers.Go(func() { bystander.run(ctx) })
	var calls atomic.Uint64
	for _, c := range []struct {
		from *Fabric
		to   string
	}{
		{hosts[1], "node3:" + ports[2]},
		{hosts[1], "node4:" + ports[3]},
		{hosts[2], "node2:" + ports[1]},
		{hosts[3], "node2:" + ports[1]},
	} {
		workers.Go(func() {
			for ctx.Err() == nil {
				someCalls(ctx, c.from, c.to)
				calls.Add(1)
			}
		})
	}
	s := &scribbler{rnd: rand.New(rand.NewPCG(seed, 1))}
	links := scribbleUntil(t, s, on, stores)
	cancel()
	done := within30("the end of the calls")
	workers.Wait()
	done()

	// This is the end, with the scribbler at work.
	stop := make(chan struct{})
	var after sync.WaitGroup
	after.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if v := on.latest(false); v != nil {
					s.burst(v, aim(s.rnd.IntN(int(aims))), 1000)
				}
			}
		}
	})
	for i, joined := range hosts {
		done := within30(fmt.Sprintf("Close of host %d", i+1))
		joined.Close()
		done()
	}
	close(stop)
	after.Wait()
	t.Logf("%d stores to %d links, %d rounds of calls, %d blocks compared", s.stores, links, calls.Load(), bystander.blocks.Load())
	require.Positive(t, links)
	require.Positive(t, calls.Load())
	require.Positive(t, bystander.blocks.Load())
}

// scribbleUntil makes so many stores, and cuts the link from time to time. It returns how
// many links there were.
func scribbleUntil(t *testing.T, s *scribbler, on *scribbled, stores uint64) (links int) {
	var last *victim
	var a aim
	var most uint64 // when the link is to be cut
	stuck := within30("a first link")
	for next := stores / 10; s.stores < stores; {
		v := on.latest(false)
		switch {
		case v == nil:
			time.Sleep(time.Millisecond)
			continue
		case v != last:
			// This gives connections time to begin, but not always.
			stuck()
			last = v
			links++
			a, most = aim(s.rnd.IntN(int(aims))), s.stores+uint64(1)<<s.rnd.IntN(17)
			time.Sleep(time.Duration(s.rnd.IntN(3)*s.rnd.IntN(10)) * time.Millisecond)
		case !v.dev.LinkUp():
			s.burst(v, aim(s.rnd.IntN(int(aims))), 200) // after the cut
			if before := on.latest(true); before != nil {
				s.burst(before, aimAnywhere, 100)
			}
			time.Sleep(time.Millisecond)
			continue
		case s.stores > most:
			v.dev.Disable()
			continue
		}
		s.burst(v, a, uint64(1)<<s.rnd.IntN(10))
		if s.rnd.IntN(8) == 0 {
			time.Sleep(time.Duration(s.rnd.IntN(1000)) * time.Microsecond) // others run
		}
		if testing.Verbose() && s.stores >= next {
			t.Logf("%d of %d stores", s.stores, stores)
			next += stores / 10
		}
	}
	return links
}

// scribbleEcho is echoOn with deadlines, since a peer may never end.
func scribbleEcho(t *testing.T, f *Fabric) (port string) {
	ln, err := f.Listen("sdp", ":0")
	require.NoError(t, err)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer within30("Close of an accepted connection")()
				defer c.Close()
				buf := make([]byte, 64<<10)
				for {
					c.SetDeadline(time.Now().Add(20 * time.Second))
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	_, port, err = net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return port
}

// someCalls makes calls that must end, whatever the peer does.
func someCalls(ctx context.Context, f *Fabric, address string) {
	limit, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	done := within30("DialContext to " + address)
	c, err := f.DialContext(limit, "sdp", address)
	done()
	done = within30("Stats")
	f.Stats()
	done()
	if err != nil {
		time.Sleep(time.Millisecond)
		return
	}
	p := make([]byte, 20<<10)
	for i := range 8 {
		done = within30("Write, Read, Close to " + address)
		c.SetDeadline(time.Now().Add(50 * time.Millisecond))
		_, werr := c.Write(p[:1+(i*7919)%len(p)])
		_, rerr := io.ReadFull(c, p[:100])
		done()
		if werr != nil || rerr != nil {
			break
		}
	}
	done = within30("Close to " + address)
	c.(*Conn).CloseWrite()
	c.Close()
	done()
}

// bystander has connections to another neighbour, and compares what it receives.
type bystander struct {
	t       *testing.T
	h       *Fabric
	address string
	blocks  atomic.Uint64
}

func (b *bystander) run(ctx context.Context) {
	rnd := rand.NewChaCha8([32]byte{7})
	for ctx.Err() == nil {
		if err := b.connection(ctx, rnd); err != nil {
			b.t.Errorf("a connection to another neighbour: %v", err)
			return
		}
	}
}

// connection makes one connection, for some blocks.
func (b *bystander) connection(ctx context.Context, rnd io.Reader) error {
	limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := b.h.DialContext(limit, "sdp", b.address)
	if err != nil {
		return err
	}
	defer c.Close()
	sent, got := make([]byte, 50_000), make([]byte, 50_000)
	for range 20 {
		if ctx.Err() != nil {
			break
		}
		rnd.Read(sent)
		c.SetDeadline(time.Now().Add(30 * time.Second))
		wrote := make(chan error, 1)
		go func() { _, err := c.Write(sent); wrote <- err }()
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if err := <-wrote; err != nil {
			return err
		}
		if !bytes.Equal(sent, got) {
			return fmt.Errorf("a block of %d bytes came back changed", len(got))
		}
		b.blocks.Add(1)
	}
	return nil
}
