package benchmarks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/sdp"
)

// networks are the transports of package net's interfaces.
var networks = []string{"sdp", "tcp", "unix"}

// pair is this process and another one, which serves on all networks.
type pair struct {
	dir     string // of the Unix sockets
	name    string // of the fabric
	fabric  *sdp.Fabric
	peer    *process
	streams map[string]string // where the peer serves, by network
	http    map[string]string
	rpc     map[string]string
}

// pairs holds the open pairs, by the options of their fabric, until all benchmarks have ended.
var pairs = map[string]*pair{}

// pairOf returns the pair whose fabric has these options, such as "?spin=0".
func pairOf(b *testing.B, options string) *pair {
	b.Helper()
	p, ok := pairs[options]
	if !ok {
		var err error
		if p, err = openPair(options); err != nil {
			b.Fatal(err)
		}
		pairs[options] = p
	}
	return p
}

func openPair(options string) (p *pair, err error) {
	p = &pair{name: freshName(), streams: map[string]string{}, http: map[string]string{}, rpc: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return p, err
	}
	if p.fabric, err = sdp.Open("shm:" + p.name + options); err != nil {
		return p, err
	}
	if p.peer, err = start("serve", nil, p.dir, "shm:"+p.name+options); err != nil {
		return p, err
	}
	for range networks {
		line, err := p.peer.line()
		if err != nil {
			return p, err
		}
		f := strings.Fields(line)
		p.streams[f[0]], p.http[f[0]], p.rpc[f[0]] = f[1], f[2], f[3]
		if err := p.verify(f[0]); err != nil {
			return p, fmt.Errorf("%s: %w", f[0], err)
		}
	}
	return p, nil
}

// close ends the peer, and removes what the pair has left.
func (p *pair) close() (err error) {
	if p.peer != nil {
		err = p.peer.end()
	}
	if p.fabric != nil {
		err = errors.Join(err, p.fabric.Close(), removeFabric(p.name))
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// dial connects to where the peer serves on a network.
func (p *pair) dial(network, address string) (net.Conn, error) {
	if network == "sdp" {
		return p.fabric.Dial(network, address)
	}
	return net.Dial(network, address)
}

// open connects for a command.
func (p *pair) open(network string, op op, size int) (net.Conn, error) {
	c, err := p.dial(network, p.streams[network])
	if err != nil {
		return nil, err
	}
	_, err = c.Write(command(op, size, 0))
	return c, err
}

// verify sends 1 MiB to and fro, and checks each byte.
func (p *pair) verify(network string) error {
	c, err := p.open(network, opEcho, 1<<16)
	if err != nil {
		return err
	}
	defer c.Close()
	return verify(c, 1<<16)
}

// verify has a connection of opEcho, with messages of size bytes, carry 1 MiB each way.
func verify(c net.Conn, size int) error {
	out, in := make([]byte, size), make([]byte, size)
	for range 1 << 20 / size {
		for i := 0; i < size; i += 8 {
			binary.LittleEndian.PutUint64(out[i:], rand.Uint64())
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
		if !bytes.Equal(in, out) {
			return errors.New("other bytes came back than were sent")
		}
	}
	return nil
}

// A connection begins with a command:
//
//	0    1      5    9
//	| op | size | to |
//
// op says what the peer does with the messages of size bytes that follow.
type op byte

const (
	opEcho  op = 1 + iota // sends each back
	opSink                // reads until the end, and answers the number of bytes
	opUsage               // answers each byte with CPU time and, if it is 1, memory, 8 bytes each
	opDrive               // does opEcho, as a client, with node number to, until the end of the connection; answers how often
	opFlood               // the same by opSink
)

const commandSize = 9

func command(op op, size, to int) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{byte(op)}, uint32(size))
	return binary.LittleEndian.AppendUint32(b, uint32(to))
}

// serve is the role of a pair's other process. Its arguments are the directory of the
// sockets and the fabric. It writes a line for each network: where streams, HTTP and gRPC are
// served.
func serve(args []string) error {
	f, err := sdp.Open(args[1])
	if err != nil {
		return err
	}
	defer leave(f, args[1])
	web := &http.Server{Handler: http.HandlerFunc(body)}
	defer web.Close()
	calls := rpcServer()
	defer calls.Stop()
	for _, network := range networks {
		var at [3]net.Addr
		for i, do := range []func(net.Listener){
			func(ln net.Listener) { serveAll(ln, nil) },
			func(ln net.Listener) { _ = web.Serve(ln) },
			func(ln net.Listener) { _ = calls.Serve(ln) },
		} {
			ln, err := listen(f, network, filepath.Join(args[0], strconv.Itoa(i)))
			if err != nil {
				return err
			}
			defer ln.Close()
			at[i] = ln.Addr()
			go do(ln)
		}
		fmt.Println(network, at[0], at[1], at[2])
	}
	return untilParentEnds()
}

// leave closes a fabric, and removes it if the process that started this one is dead.
func leave(f *sdp.Fabric, text string) {
	f.Close()
	_, name, _ := strings.Cut(text, ":")
	name, _, _ = strings.Cut(name, "?")
	_ = spec.Remove(name) // the other one removes it, if it lives
}

func listen(f *sdp.Fabric, network, path string) (net.Listener, error) {
	switch network {
	case "sdp":
		return f.Listen(network, "localhost:0")
	case "tcp":
		return net.Listen(network, "127.0.0.1:0")
	}
	return net.Listen(network, path)
}

// serveAll serves connections until ln is closed. dial connects to a node.
func serveAll(ln net.Listener, dial func(node int) (net.Conn, error)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = serveOne(c, dial) // the client reports what it misses
		}()
	}
}

func serveOne(c net.Conn, dial func(node int) (net.Conn, error)) error {
	head := make([]byte, commandSize)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	b := make([]byte, max(1, binary.LittleEndian.Uint32(head[1:])))
	switch op(head[0]) {
	case opEcho:
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return err
			}
			if _, err := c.Write(b); err != nil {
				return err
			}
		}
	case opSink:
		var n uint64
		for {
			k, err := c.Read(b)
			n += uint64(k)
			if err == io.EOF {
				return binary.Write(c, binary.LittleEndian, n)
			}
			if err != nil {
				return err
			}
		}
	case opUsage:
		for {
			if _, err := c.Read(b[:1]); err != nil {
				return err
			}
			u, err := usage(b[0] == 1)
			if err != nil {
				return err
			}
			if err := binary.Write(c, binary.LittleEndian, u); err != nil {
				return err
			}
		}
	case opDrive, opFlood:
		return drive(c, op(head[0]), b, int(binary.LittleEndian.Uint32(head[5:])), dial)
	}
	return errors.New("unknown command")
}

// drive uses a connection to node number to until control ends, and answers how often.
func drive(control net.Conn, op op, b []byte, to int, dial func(node int) (net.Conn, error)) error {
	c, err := dial(to)
	if err != nil {
		return err
	}
	defer c.Close()
	then := opEcho
	if op == opFlood {
		then = opSink
	}
	if _, err := c.Write(command(then, len(b), 0)); err != nil {
		return err
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		_, _ = io.Copy(io.Discard, control)
		_ = c.SetDeadline(time.Now())
	})
	var n uint64
	for {
		if _, err := c.Write(b); err != nil {
			break
		}
		if then == opEcho {
			if _, err := io.ReadFull(c, b); err != nil {
				break
			}
		}
		n++
	}
	ended.Wait()
	return binary.Write(control, binary.LittleEndian, n)
}

// finish ends a connection of opSink after n messages, and checks that all have arrived.
func finish(c net.Conn, n, size int) error {
	var arrived uint64
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	if err := binary.Read(c, binary.LittleEndian, &arrived); err != nil {
		return err
	}
	if arrived != uint64(n)*uint64(size) {
		return fmt.Errorf("%d bytes arrived of %d messages of %d", arrived, n, size)
	}
	return nil
}

// body answers GET /N with N bytes.
func body(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Path[1:])
	if err != nil || n < 0 || n > len(zeros) {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(zeros[:n]) // the client reports what it misses
}

var zeros [1 << 20]byte

// client returns an HTTP client of the peer's server on a network.
func (p *pair) client(network string, connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return p.dial(network, p.http[network]) },
		MaxIdleConnsPerHost: connections,
		DisableCompression:  true,
	}}
}
