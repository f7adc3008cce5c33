//go:build linux

package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"golang.org/x/sys/unix"
)

func init() { roles["far"] = playFar }

// farNode is a node of a fabric that others reach over memory of virtual machines, and by TCP if there
// is a network. TCP's names for nodes are addresses.
type farNode struct {
	fabric *sdp.Fabric
	name   string
	kept   *sdp.Conn
	moved  int64      // over kept, once lost has a value
	lost   chan error // how kept ended
}

// playFar is a node of the fabric that its first argument specifies. Where a second one is an address, it
// serves TCP there as well; where that is "client", it serves nothing. It echoes at port 7, answers with the SHA-256 of all that it got
// at port 9 and with their number at port 10, and serves /N, which has N bytes, by HTTP at port 80.
// It does what the test says:
//
//	echo NODE N   send N small messages, and get each back
//	send NODE N   send N bytes, whose sum the other side must have
//	stream NODE N send N bytes, whose number the other side must have
//	get NODE N    get N bytes by HTTP
//	node          say which node this is
//	keep NODE N   have N bytes echoed, and go on sending, without an end
//	lost          wait until that ends with an error; the connection stays open
//	drop          close that connection
//	die           be killed
//	interrupts    count those that the machine had by VFIO
func playFar(p *self) error {
	f, err := sdp.Open(p.args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	n := &farNode{fabric: f}
	var servers []func()
	defer func() {
		for _, stop := range servers {
			stop()
		}
	}()
	services := map[string]func(net.Listener){
		":7": eachConn(echoAll), ":9": eachConn(sumAll), ":10": eachConn(countAll), ":80": servePages,
	}
	if slices.Equal(p.args[1:], []string{"client"}) {
		clear(services)
	}
	for port, serve := range services {
		ln, err := f.Listen("sdp", port)
		listeners := []net.Listener{ln}
		if err == nil && len(p.args) > 1 {
			ln, err = net.Listen("tcp", p.args[1]+port)
			listeners = append(listeners, ln)
		}
		if err != nil {
			return err
		}
		n.name, _, _ = net.SplitHostPort(listeners[0].Addr().String())
		for _, ln := range listeners {
			servers = append(servers, serveUntil(ln, serve))
		}
	}
	p.printf("ready")
	for {
		line, ok := p.readLine()
		if !ok {
			return n.drop()
		}
		if answer, err := n.do(words(line)); err != nil {
			p.printf("failed: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			p.printf("ok %s", answer)
		}
	}
}

// serveUntil serves at a listener until the function that it returns is called.
func serveUntil(ln net.Listener, serve func(net.Listener)) (stop func()) {
	served := make(chan struct{})
	go func() { defer close(served); serve(ln) }()
	return func() { ln.Close(); <-served }
}

// dial dials a node by SDP, or an address by TCP.
func (n *farNode) dial(node, port string) (halfCloser, error) {
	if _, err := netip.ParseAddr(node); err != nil {
		return dialNode(n.fabric, node+port)
	}
	c, err := net.DialTimeout("tcp", node+port, testTimeout/2)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), c.SetDeadline(time.Now().Add(testTimeout))
}

// halfCloser is a connection with directions that end one by one.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func eachConn(serve func(c net.Conn)) func(net.Listener) {
	return func(ln net.Listener) {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); serve(c) }()
		}
	}
}

func echoAll(c net.Conn) { _, _ = io.Copy(c, c) } // the other side may be killed

func sumAll(c net.Conn) {
	sum := sha256.New()
	if _, err := io.Copy(sum, c); err == nil {
		_, _ = c.Write(sum.Sum(nil)) // the other side notices what is missing
	}
}

func countAll(c net.Conn) {
	b := make([]byte, chunk)
	for count := 0; ; {
		n, err := c.Read(b)
		count += n
		if err == io.EOF {
			fmt.Fprint(c, count)
		}
		if err != nil {
			return
		}
	}
}

// chunk is a Write or Read of a stream.
const chunk = 64 << 10

func servePages(ln net.Listener) {
	_ = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.URL.Path[1:], 10, 64)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		_, _ = io.CopyN(w, newStream(3), n) // the client counts
	}))
}

func (n *farNode) do(w []string) (string, error) {
	switch w[0] {
	case "echo":
		return n.echo(w[1], w[2])
	case "send":
		return n.send(w[1], w[2])
	case "stream":
		return n.stream(w[1], w[2])
	case "get":
		return n.get(w[1], w[2])
	case "node":
		return n.name, nil
	case "keep":
		return "", n.keep(w[1], w[2])
	case "lost":
		err := <-n.lost
		return fmt.Sprintf("after %d bytes: %v", n.moved, err), nil
	case "kept":
		select {
		case err := <-n.lost:
			return "", fmt.Errorf("lost: %w", err)
		default:
			return "", nil
		}
	case "drop":
		return "", n.drop()
	case "interrupts":
		return vfioInterrupts()
	case "die":
		return "", unix.Kill(unix.Getpid(), unix.SIGKILL)
	}
	return "", fmt.Errorf("no command %q", w[0])
}

func (n *farNode) echo(node, count string) (string, error) {
	c, err := n.dial(node, ":7")
	if err != nil {
		return "", err
	}
	defer c.Close()
	rounds, err := strconv.Atoi(count)
	if err != nil {
		return "", err
	}
	took := make([]time.Duration, rounds)
	message, answer := make([]byte, 64), make([]byte, 64)
	for i := range took {
		newStream(i).Read(message)
		start := time.Now()
		if _, err := c.Write(message); err != nil {
			return "", err
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			return "", err
		}
		took[i] = time.Since(start)
		if !bytes.Equal(message, answer) {
			return "", errWrongBytes
		}
	}
	slices.Sort(took)
	return fmt.Sprintf("round trip %v, 99 of 100 in %v", took[rounds/2], took[rounds*99/100]), nil
}

func (n *farNode) send(node, count string) (string, error) {
	c, err := n.dial(node, ":9")
	if err != nil {
		return "", err
	}
	defer c.Close()
	size, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return "", err
	}
	sum, start := sha256.New(), time.Now()
	if _, err := io.CopyN(io.MultiWriter(c, sum), newStream(5), size); err != nil {
		return "", err
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	got, err := io.ReadAll(c)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(got, sum.Sum(nil)) {
		return "", errors.New("the sum there is another one")
	}
	return rate(size, time.Since(start)), nil
}

func (n *farNode) stream(node, count string) (string, error) {
	c, err := n.dial(node, ":10")
	if err != nil {
		return "", err
	}
	defer c.Close()
	size, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return "", err
	}
	b, start := make([]byte, chunk), time.Now()
	for sent := int64(0); sent < size; sent += chunk {
		if _, err := c.Write(b[:min(chunk, size-sent)]); err != nil {
			return "", err
		}
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != count {
		return "", fmt.Errorf("%s bytes arrived, error %w", got, err)
	}
	return rate(size, time.Since(start)), nil
}

func rate(n int64, took time.Duration) string {
	return fmt.Sprintf("%d bytes, %.0f MB/s", n, float64(n)/1e6/took.Seconds())
}

func (n *farNode) get(node, count string) (string, error) {
	size, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return n.dial(node, ":80") }}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: testTimeout}
	start := time.Now()
	r, err := client.Get("http://" + node + ":80/" + count)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return "", errors.New(r.Status)
	}
	if err := newStream(3).readExactly(r.Body, size); err != nil {
		return "", err
	}
	return rate(size, time.Since(start)), nil
}

func (n *farNode) keep(node, count string) (err error) {
	if n.kept, err = dialNode(n.fabric, node+":7"); err != nil {
		return err
	}
	if err := there(n.kept, count); err != nil {
		return err
	}
	n.lost = make(chan error, 1)
	go func() { _, _ = io.Copy(io.Discard, n.kept) }() // the sender reports
	go func() {
		var err error
		n.moved, err = io.Copy(n.kept, newStream(2))
		n.lost <- err
	}()
	return nil
}

func (n *farNode) drop() error {
	if n.kept == nil {
		return nil
	}
	c := n.kept
	n.kept = nil
	return c.Close()
}

// vfioInterrupts returns how often this machine, of one processor, was interrupted for VFIO.
func vfioInterrupts() (string, error) {
	table, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, "vfio-msi") {
			return words(line)[1], nil
		}
	}
	return "", fmt.Errorf("none of VFIO in %q", table)
}
