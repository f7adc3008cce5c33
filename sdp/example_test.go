package sdp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/sdp"
)

// README.md and docs/ show functions from between here and the first Example, word for word:
// see TestDocumentsShowTheseExamples.

// serveEcho sends back what it reads.
func serveEcho(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return // the listener was closed
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

// ask sends a line and returns the answer.
func ask(address, line string) (string, error) {
	c, err := sdp.Dial("sdp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// serveHTTP serves on TCP and SDP, on one port.
func serveHTTP(address string) (net.Listener, error) {
	ln, err := sdp.Listen("tcp", address) // was: net.Listen
	if err != nil {
		return nil, err
	}
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr) // an IP address, by either way
		fmt.Fprintf(w, "hello, %s\n", host)
	}))
	return ln, nil
}

// httpClient takes SDP where the server is on this machine and listens by SDP, else
// TCP. Everything else is as with http.DefaultClient: HTTP/2, proxies of the
// environment, time-outs.
func httpClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&sdp.Dialer{}).DialContext
	return &http.Client{Transport: transport}
}

// openBridged opens a node whose bridges a driver has.
func openBridged(fabric string, driver func(sdp.Side) (ntb.Attachment, error)) (*sdp.Fabric, error) {
	return sdp.OpenWith(fabric, sdp.Devices{
		Attach: func(w sdp.Wire) (ntb.Attachment, error) {
			return driver(w.Side) // left leads to the node before this one, right to the next
		},
	})
}

// listenFor listens for the members of a group alone.
func listenFor(gid int) (net.Listener, error) {
	lc := sdp.ListenConfig{Allow: func(p sdp.Peer) error {
		if !p.In(gid) {
			return fmt.Errorf("want group %d", gid)
		}
		return nil
	}}
	return lc.Listen(context.Background(), "sdp", ":7000")
}

// logNodes logs what happens to nodes until ctx ends.
func logNodes(ctx context.Context, f *sdp.Fabric) {
	for e := range f.Watch(ctx) {
		log.Printf("node%d: %v, %d hops, links %v and %v", e.Node.Number, e.Type, e.Node.Hops, e.Node.Left, e.Node.Right)
	}
}

// The client of README.md has what package http's own has.
func TestTheHTTPClientKeepsWhatTheDefaultHas(t *testing.T) {
	got, want := httpClient().Transport.(*http.Transport), http.DefaultTransport.(*http.Transport)
	if !got.ForceAttemptHTTP2 || got.Proxy == nil || got.IdleConnTimeout != want.IdleConnTimeout || got.TLSHandshakeTimeout != want.TLSHandshakeTimeout {
		t.Errorf("the transport is %+v, want it as %+v", got, want)
	}
}

func Example() {
	ln, err := sdp.Listen("sdp", "localhost:0") // port 0 picks a free one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	go serveEcho(ln)

	answer, err := ask(ln.Addr().String(), "hello")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(answer)
	// Output: hello
}

func Example_http() {
	ln, err := serveHTTP("localhost:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()

	// A connection by SDP is a *sdp.Conn, one by TCP a *net.TCPConn.
	got := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { fmt.Printf("%T\n", i.Conn) },
	})
	request, err := http.NewRequestWithContext(got, "GET", "http://"+ln.Addr().String(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := httpClient()
	defer client.CloseIdleConnections()
	for _, c := range []*http.Client{client, http.DefaultClient} {
		r, err := c.Do(request)
		if err != nil {
			fmt.Println(err)
			return
		}
		io.Copy(os.Stdout, r.Body)
		r.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// *sdp.Conn
	// hello, 127.0.0.1
	// *net.TCPConn
	// hello, 127.0.0.1
}

// Errors are those of package net.
func ExampleDial_errors() {
	_, err := sdp.Dial("sdp", "localhost:9")
	var opError *net.OpError
	fmt.Println(errors.As(err, &opError), errors.Is(err, syscall.ECONNREFUSED))

	_, err = sdp.Dial("sdp", "node7:80")
	fmt.Println(errors.Is(err, syscall.EHOSTUNREACH))
	// Output:
	// true true
	// true
}

// A client says that it has sent all, and goes on reading.
func ExampleConn_CloseWrite() {
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c) // ends with the client's CloseWrite
		fmt.Fprintf(c, "%d bytes", len(all))
	}()

	c, err := sdp.Dial("sdp", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	c.Write(make([]byte, 100_000))
	c.(*sdp.Conn).CloseWrite()
	answer, _ := io.ReadAll(c)
	fmt.Printf("%s\n", answer)
	// Output: 100000 bytes
}

// A Fabric of its own fabric, which other programs do not see unless they name it
// too. "mem:" is one within this process, for tests.
func ExampleOpen() {
	fabric, err := sdp.Open("mem:example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fabric.Close()
	ln, err := fabric.Listen("sdp", ":7000")
	if err != nil {
		fmt.Println(err)
		return
	}
	go serveEcho(ln)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := fabric.DialContext(ctx, "sdp", "localhost:7000")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.RemoteAddr().Network(), c.RemoteAddr())
	// Output: sdp localhost:7000
}

// A node waits until the next one is there. Both are in one process here.
func ExampleFabric_Watch() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	first, err := sdp.Open("line:watched?node=1&nodes=2&backend=mem")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Close()
	go logNodes(ctx, first)
	second, err := sdp.Open("line:watched?node=2&nodes=2&backend=mem")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Close()
	for e := range first.Watch(ctx) {
		if n := e.Node; n.Number == 2 && e.Type == sdp.NodeUp {
			fmt.Printf("node%d is %v: %d link to the %s\n", n.Number, e.Type, n.Hops, n.Via)
			break
		}
	}
	// Output: node2 is up: 1 link to the right
}

// bridge returns the two ends of a bridge, which a driver of it would attach to.
func bridge() (a, b ntb.Attachment) {
	return ntbattach.Ends(func() (a, b ntb.Device) { return ntbmem.Pair(1 << 20) })
}

// Two machines of a line, each with one end of the bridge between them. Here they are in one
// process, and so is the bridge.
func ExampleOpenWith() {
	left, right := bridge()
	machine := func(node int, end ntb.Attachment) *sdp.Fabric {
		fabric := fmt.Sprintf("line:example?node=%d&nodes=2&backend=mem", node)
		f, err := openBridged(fabric, func(sdp.Side) (ntb.Attachment, error) { return end, nil })
		if err != nil {
			panic(err)
		}
		return f
	}
	first, second := machine(1, right), machine(2, left)
	defer first.Close()
	defer second.Close()
	ln, err := first.Listen("sdp", ":7000")
	if err != nil {
		fmt.Println(err)
		return
	}
	go serveEcho(ln)

	c, err := second.Dial("sdp", "node1:7000")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.RemoteAddr())
	// Output: node1:7000
}

// A listener accepts the members of this process' group.
func ExampleListenConfig_allow() {
	ln, err := listenFor(os.Getegid())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	go serveEcho(ln)
	c, err := sdp.Dial("sdp", "localhost:7000")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	p, known := c.(*sdp.Conn).Peer()
	fmt.Println(known, p.PID == os.Getpid())
	// Output: true true
}

// The Go code of README.md and docs/ is in this file, or in shmem's, where it is compiled
// and run.
func TestDocumentsShowTheseExamples(t *testing.T) {
	read := func(file string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	source := read("example_test.go") + read("../shmem/example_test.go") + read("testdata/hello/main.go")
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, file := range append(documents, "../README.md") {
		for _, text := range strings.Split(read(file), "```go\n")[1:] {
			block, _, _ := strings.Cut(text, "```")
			blocks++
			if formatted, err := format.Source([]byte(block)); err != nil || string(formatted) != block {
				t.Errorf("%s: not formatted: %v:\n%s", file, err, block)
			}
			if !strings.Contains(source, block) {
				t.Errorf("%s: not in example_test.go:\n%s", file, block)
			}
		}
	}
	if blocks < 4 {
		t.Errorf("%d blocks of Go, want at least 4", blocks)
	}
}
