package sdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// stalled is a line of nodes in this process whose devices can be made to block.
type stalled struct {
	hosts []*Fabric // by node; element 0 is not used
	mu    sync.Mutex
	made  []*stall // the ends of all bridges; guarded by mu
}

func newStalled(t *testing.T, nodes int) *stalled {
	l := &stalled{hosts: make([]*Fabric, 1, nodes+1)}
	stacks := map[*fabric.Fabric]*stack{}
	wrap := func(a, b ntb.Device) (ntb.Device, ntb.Device) {
		x, y := newStalls(a, b)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.made = append(l.made, x, y)
		return x, y
	}
	spec, err := spec.Parse(fmt.Sprintf("line:test?node=1&nodes=%d&backend=mem&window=1048576&spin=0", nodes))
	require.NoError(t, err)
	all, err := fabrictest.OpenNodes(spec, wrap, func(f *fabric.Fabric) {
		stacks[f] = newStack(bounce.Options{Spin: bounce.DefaultSpin})
		stacks[f].start(f)
	})
	require.NoError(t, err)
	for _, f := range all {
		s := stacks[f]
		s.fabric, s.refs = f, 1
		joined := newFabric(s, &networkCounters{})
		l.hosts = append(l.hosts, joined)
		t.Cleanup(func() { joined.Close() })
	}
	t.Cleanup(l.releaseAll) // before the Fabrics are closed, whatever has failed
	return l
}

// from returns the end, of the last bridge between two nodes, through which node a
// stores.
func (l *stalled) from(a, b int) *stall {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slices.Backward(l.made) {
		if link.ID(s.id.Load()).Host() == a && link.ID(s.other.id.Load()).Host() == b {
			return s
		}
	}
	return nil
}

func (l *stalled) releaseAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.made {
		s.gate.release()
	}
}

// calls are calls under way, by name.
type calls map[string]chan error

// begin makes a call on a goroutine of its own.
func (c calls) begin(name string, f func() error) {
	done := make(chan error, 1)
	c[name] = done
	go func() { done <- f() }()
}

// end waits for all calls. Each must return nil or one of the errors.
func (c calls) end(t *testing.T, expected ...error) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); len(c.blocked()) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	hang := c.blocked()
	for name, done := range c {
		if slices.Contains(hang, name) {
			continue
		}
		err := <-done
		if err != nil && !slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(hang) > 0 {
		t.Errorf("%s: does not return\n%s", strings.Join(hang, ", "), stacksOfAll())
	}
}

// blocked returns the calls that have not returned.
func (c calls) blocked() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if len(c[name]) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// dialTo dials with a limit, and closes the connection.
func dialTo(f *Fabric, address string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := f.DialContext(ctx, "sdp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// echoOver wants a message back over a connection.
func echoOver(c net.Conn, n int) error {
	c.SetDeadline(time.Now().Add(time.Minute))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, n))
		sent <- err
	}()
	_, err := io.ReadFull(c, make([]byte, n))
	return errors.Join(err, <-sent)
}

// conns opens a connection to a node for each name. Bytes have gone both ways over each.
func (l *stalled) conns(t *testing.T, from int, address string, names ...string) map[string]*Conn {
	all := map[string]*Conn{}
	for _, name := range names {
		c, err := l.hosts[from].Dial("sdp", address)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, echoOver(c, 100))
		require.NoError(t, c.SetDeadline(time.Time{}))
		all[name] = c.(*Conn)
	}
	return all
}

// echoes makes all nodes echo, and returns their addresses, by node.
func (l *stalled) echoes(t *testing.T) []string {
	address := make([]string, len(l.hosts))
	for i := 1; i < len(l.hosts); i++ {
		address[i] = fmt.Sprintf("node%d:%s", i, echoOn(t, l.hosts[i]))
	}
	return address
}

// Node 2 of a line of 4 cannot store to node 3: a call that tries it blocks. That ends what
// node 2 sends to nodes 3 and 4, by a direct link and by one that leads on, and nothing
// else. Each call that has to do with node 1, with node 2 itself, with another fabric or
// with the default Fabric returns meanwhile, even after the link to node 1 was made anew.
//
// A processor's store cannot be interrupted. So a call on the blocked peer returns by its
// deadline only if it need not store. These calls need not:
//
//	SetDeadline and its like, SetReadBuffer, SetWriteBuffer, SetLinger, Stats, LocalAddr,
//	RemoteAddr; Read and Peek of what has arrived, until credit is due; Read that waited
//	before, and is ended by a deadline or by Close; Listener.Close, with such a peer's
//	dial being answered
//
// These calls may have to. They return when the device takes stores again, with success or
// the error of their deadline:
//
//	Write, Reserve and Commit, ReadFrom; Read and Peek that wait, since they give credit
//	and say that they wait; Close, CloseRead, CloseWrite; Dial; Fabric.Close
func TestABlockedDeviceBlocksOneLinkAlone(t *testing.T) {
	leak.Check(t)
	const nodes, subject = 4, 2
	l := newStalled(t, nodes)
	f := l.hosts[subject]
	address := l.echoes(t)
	mine := map[int]map[string]*Conn{}
	free := calls{}
	for _, i := range []int{3, 4} {
		conns := l.conns(t, subject, address[i], append(slices.Collect(maps.Keys(blockedCalls)), "idle", "arrived", "late", "closed")...)
		mine[i] = conns
		_, err := conns["arrived"].Write(make([]byte, 100))
		require.NoError(t, err)
		_, err = conns["arrived"].Peek()
		require.NoError(t, err)
		conns["arrived"].Discard(0)
		for name, want := range map[string]error{"late": os.ErrDeadlineExceeded, "closed": net.ErrClosed} {
			parks := conns[name].Stats().ReadParks
			free.begin(fmt.Sprintf("Read that waits, %s, node %d", name, i), func() error {
				if _, err := conns[name].Read(make([]byte, 1)); !errors.Is(err, want) {
					return fmt.Errorf("%w, want %w", err, want)
				}
				return nil
			})
			within(t, 30*time.Second, func() {
				for conns[name].Stats().ReadParks == parks {
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	others := l.conns(t, subject, address[1], slices.Collect(maps.Keys(otherCalls))...)
	ln, err := f.Listen("sdp", ":0")
	require.NoError(t, err)
	defer ln.Close()

	device := l.from(subject, 3)
	device.gate.shut()
	held := calls{}
	for i, conns := range mine {
		for name, do := range blockedCalls {
			held.begin(fmt.Sprintf("%s, node %d", name, i), func() error { return do(conns[name]) })
		}
		held.begin(fmt.Sprintf("Dial, node %d", i), func() error { return dialTo(f, address[i], time.Second) })
		held.begin(fmt.Sprintf("Dial by node %d", i), func() error {
			return dialTo(l.hosts[i], ln.Addr().String(), time.Second) // node 2 cannot answer
		})
		held.begin(fmt.Sprintf("Close during Read, node %d", i), conns["closed"].Close)
	}
	// All calls on node 3 except dials block, each by itself. Of those on node 4 one
	// blocks.
	within(t, 30*time.Second, func() {
		for int(device.gate.passed.Load()) <= len(blockedCalls) {
			time.Sleep(time.Millisecond)
		}
	})
	for _, conns := range mine {
		for name := range blockedCalls {
			conns[name].SetDeadline(within1s()) // an error means that it is closed
		}
	}

	for name, do := range otherCalls {
		free.begin(name, func() error { return do(others[name]) })
	}
	for i, conns := range mine {
		free.begin(fmt.Sprintf("settings, node %d", i), func() error { return settings(conns["idle"]) })
		free.begin(fmt.Sprintf("SetDeadline, node %d", i), func() error { return conns["late"].SetDeadline(time.Unix(1, 0)) })
		free.begin(fmt.Sprintf("Read of what has arrived, node %d", i), func() error {
			_, err := io.ReadFull(conns["arrived"], make([]byte, 100))
			return err
		})
	}
	for name, do := range map[string]func() error{
		"Dial":                             func() error { return dialTo(f, address[1], time.Minute) },
		"Dial of this node":                func() error { return dialTo(f, address[2], time.Minute) },
		"Dial by another node":             func() error { return dialTo(l.hosts[1], address[2], time.Minute) },
		"Dial between nodes beyond":        func() error { return dialTo(l.hosts[4], address[3], time.Minute) },
		"Fabric.Stats":                     func() error { f.Stats(); return nil },
		"Fabric.Stats of the blocked peer": func() error { l.hosts[3].Stats(); return nil },
		"Crossovers":                       func() error { f.Crossovers(); return nil },
		"Listen, Accept and Close":         func() error { return listenAndAccept(f) },
		"Listener.Close":                   ln.Close,
		"another fabric":                   func() error { return useFabric("mem:" + fabrictest.Name(t)) },
		"the default Fabric":               useDefaultFabric,
	} {
		free.begin(name, do)
	}
	free.end(t)
	again := calls{}
	l.from(subject, 1).Disable()
	again.begin("Dial over a link made anew", func() error { return dialTo(f, address[1], time.Minute) })
	again.begin("Dial by another node over it", func() error { return dialTo(l.hosts[1], address[2], time.Minute) })
	again.end(t)
	require.Contains(t, held.blocked(), "Write of a byte, node 3", "the device blocks still")

	device.gate.release()
	held.end(t, os.ErrDeadlineExceeded, syscall.ECONNREFUSED) // refused by the listener that was closed
	echoed(t, f, address[3])
	echoed(t, f, address[4])

	device.gate.shut()
	closing, rest := calls{}, calls{}
	closing.begin("Fabric.Close", f.Close)
	rest.begin("another fabric", func() error { return useFabric("mem:" + fabrictest.Name(t)) })
	rest.begin("the default Fabric", useDefaultFabric)
	rest.begin("Dial between others", func() error { return dialTo(l.hosts[4], address[3], time.Minute) })
	rest.end(t)
	device.gate.release()
	closing.end(t)
}

// Node 2 of a line of 3 forwards, and cannot store to node 3. Node 1 need not store
// there itself. Its calls on node 3 end by their deadlines, and its others succeed, all
// while the device blocks.
func TestWhatABlockedDeviceForwardsHasDeadlines(t *testing.T) {
	leak.Check(t)
	l := newStalled(t, 3)
	address := l.echoes(t)
	mine := l.conns(t, 1, address[3], append(slices.Collect(maps.Keys(blockedCalls)), "idle")...)
	others := l.conns(t, 1, address[2], slices.Collect(maps.Keys(otherCalls))...)
	device := l.from(2, 3)
	device.gate.shut()

	held, free := calls{}, calls{}
	for name, do := range blockedCalls {
		require.NoError(t, mine[name].SetDeadline(within1s()))
		held.begin(name, func() error { return do(mine[name]) })
	}
	held.begin("Dial", func() error { return dialTo(l.hosts[1], address[3], time.Second) })
	for name, do := range otherCalls {
		free.begin(name, func() error { return do(others[name]) })
	}
	free.begin("settings", func() error { return settings(mine["idle"]) })
	free.begin("Dial of the node that forwards", func() error { return dialTo(l.hosts[1], address[2], time.Minute) })
	free.begin("Dial by it", func() error { return dialTo(l.hosts[2], address[1], time.Minute) })
	for i, f := range l.hosts[1:] {
		free.begin(fmt.Sprintf("Fabric.Stats of node %d", i+1), func() error { f.Stats(); return nil })
		free.begin(fmt.Sprintf("Listen, Accept and Close by node %d", i+1), func() error { return listenAndAccept(f) })
	}
	free.end(t)
	held.end(t, os.ErrDeadlineExceeded)
	closing := calls{}
	closing.begin("Fabric.Close of node 1", l.hosts[1].Close)
	closing.end(t)
	require.Positive(t, device.gate.passed.Load(), "the device blocks")
	device.gate.release()
}

func within1s() time.Time { return time.Now().Add(time.Second) }

// blockedCalls are calls on a blocked peer.
var blockedCalls = map[string]func(c *Conn) error{
	"Read": func(c *Conn) error {
		_, err := c.Read(make([]byte, 1))
		return err
	},
	"Peek": func(c *Conn) error {
		_, err := c.Peek()
		return err
	},
	"Write": func(c *Conn) error {
		_, err := c.Write(make([]byte, 32<<20))
		return err
	},
	"Write of a byte": func(c *Conn) error {
		_, err := c.Write([]byte{1})
		return err
	},
	"Reserve": func(c *Conn) error {
		b, err := c.Reserve(100)
		if err == nil {
			c.Commit(len(b))
		}
		return err
	},
	"ReadFrom": func(c *Conn) error {
		_, err := c.ReadFrom(bytes.NewReader(make([]byte, 32<<20)))
		return err
	},
	"CloseRead":  (*Conn).CloseRead,
	"CloseWrite": (*Conn).CloseWrite,
	"Close":      (*Conn).Close,
	"Abort": func(c *Conn) error {
		c.SetLinger(0)
		return c.Close()
	},
}

// settings makes the calls that send nothing to the peer.
func settings(c *Conn) error {
	c.Stats()
	if c.LocalAddr() == nil || c.RemoteAddr() == nil {
		return errors.New("no address")
	}
	return errors.Join(c.SetDeadline(within1s()), c.SetReadDeadline(within1s()), c.SetWriteDeadline(within1s()),
		c.SetReadBuffer(1<<20), c.SetWriteBuffer(1<<20), c.SetLinger(1))
}

// otherCalls are calls on another peer.
var otherCalls = map[string]func(c *Conn) error{
	"Write and Read": func(c *Conn) error { return echoOver(c, 4<<20) },
	"CloseWrite, and Read to the end": func(c *Conn) error {
		if err := c.CloseWrite(); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, c)
		return err
	},
	"CloseRead": (*Conn).CloseRead,
	"Close":     (*Conn).Close,
	"Stats":     func(c *Conn) error { return settings(c) },
}

// listenAndAccept listens, dials the listener, accepts, and closes everything.
func listenAndAccept(f *Fabric) error {
	ln, err := f.Listen("sdp", ":0")
	if err != nil {
		return err
	}
	if err := dialTo(f, ln.Addr().String(), time.Minute); err != nil {
		return err
	}
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	return errors.Join(c.Close(), ln.Close())
}

func useFabric(name string) error {
	f, err := Open(name)
	if err != nil {
		return err
	}
	return errors.Join(listenAndAccept(f), f.Close())
}

func useDefaultFabric() error {
	ln, err := Listen("sdp", ":0")
	if err != nil {
		return err
	}
	c, err := Dial("sdp", ln.Addr().String())
	if err != nil {
		return err
	}
	DefaultStats()
	return errors.Join(c.Close(), ln.Close())
}
