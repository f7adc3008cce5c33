package benchmarks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// test is one of the two tests of hops.
type test struct {
	name  string
	op    op // of the server
	drive op // of a node that is a client
	size  int
	run   func(b *testing.B, c net.Conn, size int) int
}

var tests = []test{
	{"latency", opEcho, opDrive, 64, echo},
	{"throughput", opSink, opFlood, 64 << 10, flood},
}

// BenchmarkHops measures chains of as many processes: a client, a forwarder for each hop but
// the first, and a server. sdp is a line of nodes, where neighbours use frames too; tcp and
// unix are relays that copy between two connections; bare is a word, or pieces of 64 KiB,
// from memory to memory. fwd-cpu-ns is the CPU time of a forwarder for each operation. A round
// trip passes it twice.
func BenchmarkHops(b *testing.B) {
	for hops := 1; hops <= 4; hops++ {
		for _, chain := range []string{"sdp", "tcp", "unix"} {
			b.Run(fmt.Sprintf("hops=%d/chain=%s", hops, chain), func(b *testing.B) {
				dial, forwarders := startChain(b, chain, hops)
				for _, t := range tests {
					b.Run("test="+t.name, func(b *testing.B) {
						forwarded(b, forwarders, func() int { return along(b, t, dial) })
					})
				}
			})
		}
		b.Run(fmt.Sprintf("hops=%d/chain=bare", hops), func(b *testing.B) {
			b.Run("test=latency", func(b *testing.B) {
				p, forwarders := startBare(b, hops)
				forwarded(b, forwarders, func() int { return bareLatency(b, p) })
			})
			b.Run("test=throughput", func(b *testing.B) {
				p, forwarders := startBare(b, hops)
				forwarded(b, forwarders, func() int { return bareThroughput(b, p) })
			})
		})
	}
}

// along runs a test on a new connection, and returns how many operations there were.
func along(b *testing.B, t test, dial func() (net.Conn, error)) int {
	c, err := dial()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(command(t.op, t.size, 0)); err != nil {
		b.Fatal(err)
	}
	return t.run(b, c, t.size)
}

// forwarded reports the CPU time that each of some processes uses for an operation of run.
func forwarded(b *testing.B, pids []int, run func() int) {
	used := func() (sum int64) {
		for _, pid := range pids {
			cpu, err := cpuTime(pid)
			if err != nil {
				b.Fatal(err)
			}
			sum += cpu
		}
		return sum
	}
	before := used()
	n := run()
	if len(pids) > 0 {
		b.ReportMetric(float64(used()-before)/float64(n)/float64(len(pids)), "fwd-cpu-ns/op")
	}
}

// startChain starts a chain. dial connects to its last process.
func startChain(b *testing.B, chain string, hops int) (dial func() (net.Conn, error), forwarders []int) {
	if chain == "sdp" {
		n := startNodes(b, "line", hops+1, 1, hops == 1)
		dial = func() (net.Conn, error) { return dialNode(n.fabric, hops+1) }
		verifyChain(b, dial)
		return dial, n.pids[:hops-1]
	}
	p := pairOf(b, "")
	next := p.streams[chain]
	for range hops - 1 {
		r := startFor(b, "relay", nil, chain, filepath.Join(b.TempDir(), "socket"), next)
		var err error
		if next, err = r.line(); err != nil {
			b.Fatal(err)
		}
		forwarders = append(forwarders, r.Process.Pid)
	}
	dial = func() (net.Conn, error) { return net.Dial(chain, next) }
	verifyChain(b, dial)
	return dial, forwarders
}

func verifyChain(b *testing.B, dial func() (net.Conn, error)) {
	c, err := dial()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(command(opEcho, 1<<14, 0)); err != nil {
		b.Fatal(err)
	}
	if err := verify(c, 1<<14); err != nil {
		b.Fatal(err)
	}
}

// relay is the role of a forwarder of sockets. Its arguments are the network, the path if it
// has one, and where the next process listens. It writes where it listens itself.
func relay(args []string) error {
	ln, err := listen(nil, args[0], args[1])
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go relayOne(c, args[0], args[2])
		}
	}()
	fmt.Println(ln.Addr())
	return untilParentEnds()
}

// relayOne copies both ways, as one writes it with package net.
func relayOne(c net.Conn, network, next string) {
	defer c.Close()
	d, err := net.Dial(network, next)
	if err != nil {
		return // the client reports what it misses
	}
	defer d.Close()
	var both sync.WaitGroup
	both.Go(func() { pass(d, c) })
	both.Go(func() { pass(c, d) })
	both.Wait()
}

// pass copies what one side sends to the other, and its end.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from) // the ends report what goes wrong
	_ = to.(interface{ CloseWrite() error }).CloseWrite()
}

// nodes are the nodes of a fabric. This process is node 1.
type nodes struct {
	fabric *sdp.Fabric
	pids   []int // of the others, in order
}

const nodePort = 7

func dialNode(f *sdp.Fabric, node int) (net.Conn, error) {
	return f.Dial("sdp", fmt.Sprintf("node%d:%d", node, nodePort))
}

// startNodes starts a ring or a line, and waits for all its links. With frames, neighbours
// use frames as all other nodes do, rather than stores.
func startNodes(b *testing.B, topology string, count, lanes int, frames bool) *nodes {
	return startNodesWith(b, topology, count, lanes, frames, sdp.Devices{})
}

// startNodesWith is startNodes with devices of node 1.
func startNodesWith(b *testing.B, topology string, count, lanes int, frames bool, d sdp.Devices) *nodes {
	name := freshName()
	spec := func(node int) string {
		s := fmt.Sprintf("%s:%s?node=%d&nodes=%d&lanes=%d", topology, name, node, count, lanes)
		if frames {
			s += "&failover=1"
		}
		return s
	}
	b.Cleanup(func() {
		if err := removeFabric(name); err != nil {
			b.Error(err)
		}
	})
	n := &nodes{}
	var others []*process
	for i := 2; i <= count; i++ {
		p := startFor(b, "node", nil, spec(i))
		others, n.pids = append(others, p), append(n.pids, p.Process.Pid)
	}
	f, err := sdp.OpenWith(spec(1), d)
	if err != nil {
		b.Fatal(err)
	}
	n.fabric = f
	b.Cleanup(func() {
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	})
	ln, err := f.Listen("sdp", fmt.Sprintf(":%d", nodePort))
	if err != nil {
		b.Fatal(err)
	}
	go serveAll(ln, func(to int) (net.Conn, error) { return dialNode(f, to) }) // until f is closed
	for _, p := range others {
		if _, err := p.line(); err != nil {
			b.Fatal(err)
		}
	}
	down := func(l sdp.LinkState) bool { return l != sdp.LinkUp && l != sdp.LinkNone }
	for end := time.Now().Add(2 * patience); slices.ContainsFunc(f.Nodes(), func(n sdp.Node) bool {
		return !n.Up || down(n.Left) || down(n.Right)
	}); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("links are not up: %+v", f.Nodes())
		}
	}
	return n
}

// serveNode is the role of the other nodes. Its argument is the fabric.
func serveNode(args []string) error {
	f, err := sdp.Open(args[0])
	if err != nil {
		return err
	}
	defer leave(f, args[0])
	ln, err := f.Listen("sdp", fmt.Sprintf(":%d", nodePort))
	if err != nil {
		return err
	}
	go serveAll(ln, func(to int) (net.Conn, error) { return dialNode(f, to) })
	fmt.Println("ready")
	return untilParentEnds()
}

// BenchmarkRing measures rings by nodes, lanes and hops: node 1 and the node so many hops to
// its right alone, and every node and that one of its own at once. all-ops/s is what all of
// them do, slowest-% what the slowest one does of its fair share.
func BenchmarkRing(b *testing.B) {
	for _, count := range []int{4, 8} {
		for _, lanes := range []int{1, 2} {
			b.Run(fmt.Sprintf("nodes=%d/lanes=%d", count, lanes), func(b *testing.B) {
				n := startNodes(b, "ring", count, lanes, true)
				for _, hops := range []int{1, count / 2} {
					for _, t := range tests {
						b.Run(fmt.Sprintf("hops=%d/test=%s/at=alone", hops, t.name), func(b *testing.B) {
							along(b, t, func() (net.Conn, error) { return dialNode(n.fabric, 1+hops) })
						})
						b.Run(fmt.Sprintf("hops=%d/test=%s/at=once", hops, t.name), func(b *testing.B) {
							atOnce(b, n, hops, t)
						})
					}
				}
			})
		}
	}
}

// atOnce runs a test from every node to the one so many hops to its right.
func atOnce(b *testing.B, n *nodes, hops int, t test) {
	count := len(n.pids) + 1
	var all []driver
	for from := 2; from <= count; from++ {
		all = append(all, startDriver(b, n, from, (from+hops-1)%count+1, t.drive, t.size))
	}
	start := time.Now()
	rates := []float64{float64(along(b, t, func() (net.Conn, error) { return dialNode(n.fabric, 1+hops) }))}
	took := time.Since(start).Seconds()
	for _, d := range all {
		rates = append(rates, float64(d.stop(b)))
	}
	sum := 0.
	for _, r := range rates {
		sum += r
	}
	b.ReportMetric(sum/took, "all-ops/s")
	b.ReportMetric(100*slices.Min(rates)*float64(count)/sum, "slowest-%")
}

// BenchmarkShare has node 1 send to node 3 by way of node 2, which sends there itself, both
// all they can. own-% is the part of node 2's own bytes.
func BenchmarkShare(b *testing.B) {
	n := startNodes(b, "line", 3, 1, true)
	for _, size := range [][2]int{{64 << 10, 64 << 10}, {4 << 10, 64 << 10}, {64 << 10, 4 << 10}} {
		b.Run(fmt.Sprintf("own=%s/forwarded=%s", sizeText(size[0]), sizeText(size[1])), func(b *testing.B) {
			d := startDriver(b, n, 2, 3, opFlood, size[0])
			t := tests[1]
			t.size = size[1]
			forwarded := float64(size[1] * along(b, t, func() (net.Conn, error) { return dialNode(n.fabric, 3) }))
			own := float64(size[0]) * float64(d.stop(b))
			b.ReportMetric(100*own/(own+forwarded), "own-%")
		})
	}
}

// driver is a connection by which a node has been asked to be a client of another one.
type driver struct{ net.Conn }

func startDriver(b *testing.B, n *nodes, from, to int, op op, size int) driver {
	c, err := dialNode(n.fabric, from)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	if _, err := c.Write(command(op, size, to)); err != nil {
		b.Fatal(err)
	}
	return driver{c}
}

// stop ends what the node does, and returns how many operations there were.
func (d driver) stop(b *testing.B) (n uint64) {
	if err := errors.Join(d.Conn.(*sdp.Conn).CloseWrite(), binary.Read(d, binary.LittleEndian, &n)); err != nil {
		b.Fatal(err)
	}
	return n
}
