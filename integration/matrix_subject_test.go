//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

func init() { roles["matrix"] = playMatrix }

const (
	// matrixLimit is the deadline of each call that has one.
	matrixLimit = time.Second
	// matrixTimeout is how long a call without a deadline may take, or one with a
	// deadline to return.
	matrixTimeout = testTimeout
)

// subject is a process of a cell of the matrix. Every one echoes at a port of its own,
// whose address it reports first, and does what the test says:
//
//	prepare STATE ADDRESS  open a connection for each call, and bring them into a state
//	call EVENT             make all calls at once; the answer is the outcomes, in JSON
//	reach                  dial the address of prepare, and want an echo
//	survive                want an echo over a connection that no call has used
//	close                  Fabric.Close; the answer is what went wrong
//	bystand ADDRESS        begin to dial that address, and to listen, all the time
//	progress N             wait until that was done N times more
//	rest                   end it
//	pester ADDRESS         begin to dial that address all the time, and ignore errors
//	cut PID                cut the cables to a process; the answer is how many
type subject struct {
	*self
	fabric   *sdp.Fabric
	target   string // of prepare
	state    string // of prepare: "idle", "bulk" or "dialling"
	conns    map[string]*sdp.Conn
	resets   map[string]*atomic.Bool // of "bulk", by name of conns: a pump has returned the reset
	survivor *sdp.Conn

	over    atomic.Bool // ends what runs all the time
	pumps   sync.WaitGroup
	dialled atomic.Int64 // number of dials that have returned, of those made all the time
	failed  chan error   // an error that they must not get; capacity 1
	by      bystander
}

func playMatrix(p *self) error {
	f, err := sdp.Open(p.args[0])
	if err != nil {
		return err
	}
	s := &subject{self: p, fabric: f, conns: map[string]*sdp.Conn{}, resets: map[string]*atomic.Bool{}, failed: make(chan error, 1)}
	ln, err := f.Listen("sdp", ":0")
	if err != nil {
		return err
	}
	s.pumps.Go(func() { s.echo(ln) })
	p.printf("%s", ln.Addr())
	for {
		line, ok := p.readLine()
		if !ok {
			break
		}
		answer, err := s.do(words(line))
		if err != nil {
			answer = err.Error()
		}
		p.printf("%s", strings.ReplaceAll(answer, "\n", "; "))
	}
	s.over.Store(true)
	f.Close() // it may be closed already
	s.pumps.Wait()
	return nil
}

func (s *subject) do(w []string) (string, error) {
	switch w[0] {
	case "prepare":
		return "ok", s.prepare(w[1], w[2])
	case "call":
		b, err := json.Marshal(s.callAll(expectedOf(w[1])))
		return string(b), err
	case "reach":
		return "ok", echoedBy(s.fabric, s.target)
	case "survive":
		return "ok", s.survive()
	case "close":
		return "ok", s.closeFabric()
	case "bystand":
		s.by.begin(s.fabric, w[1])
		return "ok", nil
	case "progress":
		return "ok", s.by.progress(w[1])
	case "rest":
		return "ok", s.by.end()
	case "pester":
		for range 4 {
			s.pester(w[1])
		}
		return "ok", nil
	case "cut":
		n, err := cutCables(w[1])
		return fmt.Sprint(n), err
	}
	return "", fmt.Errorf("what is %q", w[0])
}

// echo sends back what arrives on every connection, until the Fabric is closed.
func (s *subject) echo(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		s.pumps.Go(func() {
			defer c.Close()
			_, _ = io.Copy(c, c) // the other side may be killed
			_ = c.(*sdp.Conn).CloseWrite()
		})
	}
}

// prepare brings this process into the state in which the other one is then
// stopped, killed, or cut off.
func (s *subject) prepare(state, target string) error {
	s.state, s.target = state, target
	names := []string{"survivor"}
	for _, c := range connCalls {
		names = append(names, c.name)
	}
	var moved []*atomic.Int64
	for _, name := range names {
		c, err := dialNode(s.fabric, target)
		if err != nil {
			return err
		}
		if err := there(c, "1000"); err != nil {
			return err
		}
		if err := c.SetDeadline(time.Time{}); err != nil {
			return err
		}
		if name == "survivor" {
			s.survivor = c
			continue
		}
		s.conns[name] = c
		if state == "bulk" {
			s.resets[name] = new(atomic.Bool)
			moved = append(moved, s.pump(c, s.resets[name]))
		}
	}
	for _, n := range moved {
		if err := waitFor("bulk moves", func() bool { return n.Load() >= 256<<10 }); err != nil {
			return err
		}
	}
	if state == "dialling" {
		for range 8 {
			s.pester(target)
		}
		return waitFor("dials return", func() bool { return s.dialled.Load() >= 8 })
	}
	return nil
}

// pump writes to a connection and reads from it until it ends, and counts what was
// read. It notes whether it was told of a reset.
func (s *subject) pump(c *sdp.Conn, reset *atomic.Bool) *atomic.Int64 {
	var n atomic.Int64
	s.pumps.Go(func() {
		b := make([]byte, 64<<10)
		for err := error(nil); err == nil; {
			if _, err = c.Write(b); errors.Is(err, syscall.ECONNRESET) {
				reset.Store(true)
			}
		}
	})
	s.pumps.Go(func() {
		b := make([]byte, 64<<10)
		for {
			k, err := c.Read(b)
			n.Add(int64(k))
			if errors.Is(err, syscall.ECONNRESET) {
				reset.Store(true)
			}
			if err != nil {
				return
			}
		}
	})
	return &n
}

// pester dials all the time. It keeps the error of a dial that does not end by its
// limit, or that ends with an error that users do not expect.
func (s *subject) pester(target string) {
	s.pumps.Go(func() {
		for !s.over.Load() {
			var err error
			returned := returns(func() {
				var c net.Conn
				c, err = (&sdp.Dialer{Fabric: s.fabric, Timeout: matrixLimit}).Dial("sdp", target)
				if err == nil {
					c.Close()
				}
			})
			if !returned {
				err = errHangs
			} else if verdict(err, expectedOf("").dial) == nil {
				err = nil
			}
			s.dialled.Add(1)
			if err != nil && !s.over.Load() {
				select {
				case s.failed <- fmt.Errorf("one of many dials: %w", err):
				default:
				}
				return
			}
		}
	})
}

// survive wants an echo over the connection that no call has used.
func (s *subject) survive() error {
	if err := s.survivor.SetDeadline(time.Now().Add(matrixTimeout)); err != nil {
		return err
	}
	return there(s.survivor, "1000")
}

// closeFabric closes the Fabric while it has connections and listeners of all kinds, and
// ends what runs. Then no call may succeed.
func (s *subject) closeFabric() error {
	s.over.Store(true)
	if !returns(func() { s.fabric.Close() }) {
		return hangs("Fabric.Close")
	}
	if !returns(s.pumps.Wait) {
		return hangs("what ran when the Fabric was closed")
	}
	if err := s.fabric.Close(); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("Fabric.Close of a closed Fabric: %w", err)
	}
	for name, err := range map[string]error{
		"Read":   second(s.survivor.Read(make([]byte, 1))),
		"Write":  second(s.survivor.Write(make([]byte, 1))),
		"Dial":   second(s.fabric.Dial("sdp", s.target)),
		"Listen": second(s.fabric.Listen("sdp", ":0")),
	} {
		if must(err, closed) != nil {
			return fmt.Errorf("%s of a closed Fabric: %v", name, err)
		}
	}
	select {
	case err := <-s.failed:
		return err
	default:
		return nil
	}
}

func second[T any](_ T, err error) error { return err }

// echoedBy dials, and wants back what it sends.
func echoedBy(f *sdp.Fabric, address string) error {
	c, err := dialNode(f, address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := there(c, "1000"); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	rest, err := io.ReadAll(c)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	return err
}

// returns reports whether f returns. It asserts no time: the limit only catches a
// call that hangs.
func returns(f func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return true
	case <-time.After(matrixTimeout):
		return false
	}
}

var errHangs = errors.New("hangs")

// hangs returns an error that names what hangs. It logs the stacks of all
// goroutines.
func hangs(what string) error {
	b := make([]byte, 4<<20)
	b = bytes.TrimSpace(b[:runtime.Stack(b, true)])
	fmt.Fprintf(os.Stderr, "%s hangs:\n%s\n", what, b)
	return fmt.Errorf("%s: %w", what, errHangs)
}

// waitFor waits until ok returns true.
func waitFor(what string, ok func() bool) error {
	for end := time.Now().Add(matrixTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return hangs("waiting until " + what)
		}
	}
	return nil
}
