package sdp

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// socket is what a *net.TCPConn and a *Conn have in common.
type socket interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
}

// outcome is what a call returned, as far as programs can depend on it.
type outcome struct {
	n     int
	data  string // what Read returned
	op    string // of the *net.OpError
	cause error  // nil, io.EOF, or one of causes
}

var causes = []error{
	net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE, syscall.ENOTCONN,
}

func outcomeOf(n int, data []byte, err error) outcome {
	o := outcome{n: n, data: string(data), cause: err}
	if err == nil || err == io.EOF {
		return o
	}
	if op := new(net.OpError); errors.As(err, &op) {
		o.op = op.Op
	}
	if i := slices.IndexFunc(causes, func(c error) bool { return errors.Is(err, c) }); i >= 0 {
		o.cause = causes[i]
	}
	return o
}

func (o outcome) String() string {
	data := o.data
	if len(data) > 20 {
		data = data[:20] + "…"
	}
	return fmt.Sprintf("%d %q %s %v", o.n, data, o.op, o.cause)
}

// step is a call on one endpoint.
type step struct {
	end  int
	name string
	call func(socket) outcome
}

func read(n int) func(socket) outcome {
	return func(c socket) outcome {
		b := make([]byte, n)
		n, err := c.Read(b)
		return outcomeOf(n, b[:n], err)
	}
}

func write(p []byte) func(socket) outcome {
	return func(c socket) outcome {
		n, err := c.Write(p)
		return outcomeOf(n, nil, err)
	}
}

// does makes a call of one that only returns an error.
func does(f func(socket) error) func(socket) outcome {
	return func(c socket) outcome { return outcomeOf(0, nil, f(c)) }
}

// twins are a TCP connection and one of ours, on which the same calls are made. The
// state of the TCP connection decides when a step is over, and whether a Read has to
// wait.
type twins struct {
	t         *testing.T
	tcp, ours [2]socket
	reads     [2]*pendingRead // Reads that wait

	written   [2]int // bytes so far
	closed    [2]bool
	readShut  [2]bool
	writeShut [2]bool
	lingers   [2]bool // SetLinger(0) was called
	reset     [2]bool // its TCP socket is reset, or will be
	late      [2]bool // the endpoint's next deadline for Read is past
	log       []string
}

type pendingRead struct{ tcp, ours chan outcome }

func (w *twins) failf(format string, args ...any) {
	w.t.Helper()
	require.FailNow(w.t, fmt.Sprintf(format, args...), strings.Join(w.log, "\n"))
}

// eventually waits for something that needs nothing but the kernel's work.
func (w *twins) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Microsecond) {
		if time.Now().After(end) {
			w.failf("no %s in 30 s", what)
		}
	}
}

// States of a TCP socket, from the kernel's tcp_states.h.
const (
	tcpFinWait1  = 4
	tcpClose     = 7
	tcpCloseWait = 8
	tcpLastAck   = 9
	tcpClosing   = 11
)

// stateOf returns the state of a TCP socket that is not closed, how many bytes have
// arrived, and how many of them were not read.
func (w *twins) stateOf(c *net.TCPConn) (state, arrived, unread int) {
	raw, err := c.SyscallConn()
	require.NoError(w.t, err)
	require.NoError(w.t, raw.Control(func(fd uintptr) { state, arrived, unread = tcpSocket(w.t, int(fd)) }))
	return
}

func (w *twins) tcpState(end int) (state, arrived, unread int) {
	return w.stateOf(w.tcp[end].(*net.TCPConn))
}

// settle waits until TCP has done what follows from the calls so far.
func (w *twins) settle() {
	w.settled(w.tcp)
	if _, ok := w.ours[0].(*net.TCPConn); ok {
		w.settled(w.ours)
	}
}

func (w *twins) settled(ends [2]socket) {
	for x, c := range ends {
		if w.closed[x] {
			continue
		}
		w.eventually("settled TCP socket", func() bool {
			state, arrived, _ := w.stateOf(c.(*net.TCPConn))
			switch {
			case state == tcpClose:
				return true
			case w.reset[x], arrived < w.written[1-x], state == tcpFinWait1, state == tcpLastAck, state == tcpClosing:
				return false
			case w.closed[1-x] || w.writeShut[1-x]:
				return state == tcpCloseWait
			}
			return true
		})
	}
}

// waits reports whether a Read of the TCP endpoint has nothing to return.
func (w *twins) waits(end int) bool {
	if w.closed[end] || w.readShut[end] || w.late[end] {
		return false
	}
	state, _, unread := w.tcpState(end)
	return unread == 0 && state != tcpClose && state != tcpCloseWait
}

// same fails unless both outcomes are equal.
func (w *twins) same(s step, tcp, ours outcome) {
	w.t.Helper()
	if tcp != ours {
		w.failf("end %d, %s: TCP returned %v, SDP %v", s.end, s.name, tcp, ours)
	}
}

// do makes a step on both connections.
func (w *twins) do(s step) {
	w.t.Helper()
	w.log = append(w.log, fmt.Sprintf("%d.%s", s.end, s.name))
	resets := w.willReset(s)
	tcp := s.call(w.tcp[s.end])
	ours := s.call(w.ours[s.end])
	w.log[len(w.log)-1] += fmt.Sprintf(" = %v | %v", tcp, ours)
	w.same(s, tcp, ours)
	w.note(s, tcp, resets)
	w.settle()
	w.wake(s, tcp)
}

// willReset reports whether a Close resets the other endpoint's TCP socket.
func (w *twins) willReset(s step) bool {
	if s.name != "Close" || w.closed[s.end] {
		return false
	}
	state, _, unread := w.tcpState(s.end)
	return state != tcpClose && (unread > 0 || w.lingers[s.end])
}

// note records what a step has done to the TCP connection.
func (w *twins) note(s step, tcp outcome, resets bool) {
	x, y := s.end, 1-s.end
	w.reset[y] = w.reset[y] || resets
	if s.name == "Write" && tcp.n > 0 && (w.closed[y] || w.readShut[y] && w.writeShut[y]) {
		w.reset = [2]bool{true, true}
	}
	if tcp.cause != nil && tcp.cause != syscall.ENOTCONN {
		return
	}
	switch s.name {
	case "Close":
		w.closed[x] = true
	case "CloseRead":
		w.readShut[x] = true
	case "CloseWrite":
		w.writeShut[x] = true
	case "Write":
		w.written[x] += tcp.n
	}
}

// wake waits for the Reads that the step has woken over TCP, and only for those.
func (w *twins) wake(s step, tcp outcome) {
	w.t.Helper()
	for x, r := range w.reads {
		if r == nil {
			continue
		}
		arrived := s.name == "Write" && s.end != x && tcp.n > 0
		if !arrived && w.waits(x) {
			select {
			case o := <-r.ours:
				w.failf("end %d: Read returned %v, and waits over TCP", x, o)
			default:
			}
			continue
		}
		w.reads[x] = nil
		w.log = append(w.log, fmt.Sprintf("%d.Read woken", x))
		a, b := <-r.tcp, w.arrive(r.ours)
		w.log[len(w.log)-1] += fmt.Sprintf(" = %v | %v", a, b)
		w.same(step{x, "Read", nil}, a, b)
	}
}

func (w *twins) arrive(c chan outcome) outcome {
	w.t.Helper()
	select {
	case o := <-c:
		return o
	case <-time.After(30 * time.Second):
		w.failf("the Read still waits")
		panic("unreachable")
	}
}

// read makes a Read, in the background if it has to wait.
func (w *twins) read(end, n int) {
	w.t.Helper()
	if n == 0 || !w.waits(end) {
		w.do(step{end, "Read", read(n)})
		return
	}
	w.log = append(w.log, fmt.Sprintf("%d.Read waits", end))
	r := &pendingRead{make(chan outcome, 1), make(chan outcome, 1)}
	tcp, ours := w.tcp[end], w.ours[end]
	go func() { r.tcp <- read(n)(tcp) }()
	go func() { r.ours <- read(n)(ours) }()
	w.reads[end] = r
}

// random makes one random step. Calls that end something are rare.
func (w *twins) random(rng *rand.Rand) {
	x := rng.IntN(2)
	switch k := rng.IntN(100); {
	case k < 35:
		if w.reads[x] == nil {
			w.read(x, []int{0, 1, 10, 300, 5000, 70000}[rng.IntN(6)])
		}
	case k < 65:
		size := []int{0, 1, 7, 100, 248, 249, 1000, 5000, 20000}[rng.IntN(9)]
		if w.reads[1-x] != nil {
			size = min(size, 248) // one record wakes the Read, as one segment does
		}
		if w.written[x] < 100_000 { // so that no Write has to wait
			w.do(step{x, "Write", write(streamAt(w.written[x], size))})
		}
	case k < 85:
		w.deadline(x, rng)
	case k < 88:
		sec := []int{-1, 0, 0, 1}[rng.IntN(4)]
		w.do(step{x, "SetLinger", does(func(c socket) error { return c.SetLinger(sec) })})
		w.lingers[x] = sec == 0
	case k < 92:
		w.do(step{x, "CloseRead", does(socket.CloseRead)})
	case k < 97:
		w.do(step{x, "CloseWrite", does(socket.CloseWrite)})
	default:
		w.do(step{x, "Close", does(socket.Close)})
	}
}

// deadline sets a deadline that is past, far away or none.
func (w *twins) deadline(x int, rng *rand.Rand) {
	when := []time.Time{time.Now().Add(-time.Second), time.Now().Add(time.Hour), {}, {}, {}}[rng.IntN(5)]
	late := !when.IsZero() && when.Before(time.Now())
	name := []string{"SetDeadline", "SetReadDeadline", "SetWriteDeadline"}[rng.IntN(3)]
	if !w.closed[x] && name != "SetWriteDeadline" {
		w.late[x] = late
	}
	w.do(step{x, name, does(func(c socket) error {
		switch name {
		case "SetReadDeadline":
			return c.SetReadDeadline(when)
		case "SetWriteDeadline":
			return c.SetWriteDeadline(when)
		}
		return c.SetDeadline(when)
	})})
}

// streamAt returns n bytes of a stream from a position on.
func streamAt(from, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((from + i) % 251)
	}
	return p
}

// end closes what is open.
func (w *twins) end() {
	for x := range 2 {
		if !w.closed[x] {
			w.do(step{x, "Close", does(socket.Close)})
		}
	}
}

// twin makes a TCP connection and one of ours.
func twin(t *testing.T, tcp net.Listener, sdp func() (a, b net.Conn, stop func(), err error)) *twins {
	t.Helper()
	w := &twins{t: t}
	dialled, err := net.Dial("tcp", tcp.Addr().String())
	require.NoError(t, err)
	accepted, err := tcp.Accept()
	require.NoError(t, err)
	a, b, _, err := sdp()
	require.NoError(t, err)
	w.tcp = [2]socket{dialled.(socket), accepted.(socket)}
	w.ours = [2]socket{a.(socket), b.(socket)}
	return w
}

// Each sequence of calls has the same results over TCP and over SDP. To repeat a failing
// seed:
//
//	NTBNET_SEED=17 go test ./sdp -run TestCallsReturnWhatTCPsDo
func TestCallsReturnWhatTCPsDo(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	sequences := func(t *testing.T, pair func() (a, b net.Conn, stop func(), err error)) {
		first, n := seedsOf(t)
		for seed := first; seed < first+n; seed++ {
			rng := rand.New(rand.NewPCG(seed, 11))
			w := twin(t, ln, pair)
			w.log = append(w.log, fmt.Sprintf("seed %d: end.call = TCP's outcome | SDP's", seed))
			for range 60 {
				w.random(rng)
			}
			w.end()
		}
	}
	// Where TCP itself differs from one time to the next, that is no difference.
	t.Run("tcp", func(t *testing.T) {
		sequences(t, func() (a, b net.Conn, stop func(), err error) {
			if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
				return nil, nil, nil, err
			}
			b, err = ln.Accept()
			return a, b, nil, err
		})
	})
	onFabrics(t, func(t *testing.T, f *Fabric) {
		sequences(t, func() (a, b net.Conn, stop func(), err error) { return pipe(f) })
	})
}

// A Write that waits for room ends as over TCP, whatever ends it. How much it has written
// by then differs.
func TestWriteThatWaitsEndsAsTCPs(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for name, end := range map[string]func(writer, reader socket) error{
			"Close":          func(w, _ socket) error { return w.Close() },
			"CloseWrite":     func(w, _ socket) error { return w.CloseWrite() },
			"deadline":       func(w, _ socket) error { return w.SetWriteDeadline(time.Unix(1, 0)) },
			"peer's Close":   func(_, r socket) error { return r.Close() },
			"peer's abort":   func(_, r socket) error { return errors.Join(r.SetLinger(0), r.Close()) },
			"CloseRead, too": func(w, _ socket) error { return errors.Join(w.CloseRead(), w.Close()) },
		} {
			t.Run(name, func(t *testing.T) {
				w := twin(t, ln, func() (a, b net.Conn, stop func(), err error) { return pipe(f) })
				outcomes := func(ends [2]socket) []outcome {
					written := make(chan outcome, 1)
					go func() { written <- write(make([]byte, 64<<20))(ends[0]) }()
					_, err := io.ReadFull(ends[1], make([]byte, 1)) // the Write has begun
					require.NoError(t, err)
					ended := does(func(socket) error { return end(ends[0], ends[1]) })(nil)
					first := <-written
					require.Less(t, first.n, 64<<20)
					first.n = 0
					return []outcome{ended, first, write([]byte("x"))(ends[0]), write([]byte("x"))(ends[0])}
				}
				require.Equal(t, outcomes(w.tcp), outcomes(w.ours))
				for x := range 2 {
					w.tcp[x].Close()
					w.ours[x].Close()
				}
			})
		}
	})
}

// The owner of a Write closes the connection when that fails, as it does since another goroutine has called CloseWrite.
func TestCloseWriteMeetsClose(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for range 100 {
			w := twin(t, ln, func() (a, b net.Conn, stop func(), err error) { return pipe(f) })
			outcomes := func(ends [2]socket) []outcome {
				owner := make(chan []outcome, 1)
				go func() {
					failed := write(make([]byte, 64<<20))(ends[0])
					failed.n = 0
					owner <- []outcome{failed, does(socket.Close)(ends[0])}
				}()
				_, err := io.ReadFull(ends[1], make([]byte, 1)) // the Write has begun
				require.NoError(t, err)
				shut := does(socket.CloseWrite)(ends[0])
				return append(<-owner, shut, does(socket.CloseWrite)(ends[0]), does(socket.CloseRead)(ends[0]))
			}
			require.Equal(t, outcomes(w.tcp), outcomes(w.ours))
			w.tcp[1].Close()
			w.ours[1].Close()
		}
	})
}

// mayEnd returns the errors with which TCP may end a call beside another one on the same connection.
func mayEnd(call, beside string) []error {
	may := []error{nil}
	closes := map[string]bool{"Close": true, "abort": true}
	if closes[beside] {
		may = append(may, net.ErrClosed)
	}
	switch [2]string{call, beside} {
	case [2]string{"Read", "SetDeadline"}, [2]string{"Write", "SetDeadline"}:
		may = append(may, os.ErrDeadlineExceeded)
	case [2]string{"Read", "CloseRead"}:
		may = append(may, io.EOF)
	case [2]string{"Write", "CloseWrite"}:
		may = append(may, syscall.EPIPE)
	case [2]string{"CloseWrite", "CloseWrite"}, [2]string{"CloseRead", "CloseWrite"}: // the other end may have closed in answer
		may = append(may, syscall.ENOTCONN)
	}
	return may
}

// Any two calls may be made on a connection at once.
func TestCallsAtOnceEndAsTCPsMay(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	calls := map[string]func(socket) outcome{
		"Read": read(1), "Write": write(make([]byte, 1<<20)), "CloseRead": does(socket.CloseRead), "CloseWrite": does(socket.CloseWrite),
		"SetDeadline": does(func(c socket) error { return c.SetDeadline(time.Unix(1, 0)) }),
		"Close":       does(socket.Close), "abort": does(func(c socket) error { return errors.Join(c.SetLinger(0), c.Close()) }),
	}
	// beside makes two calls at once on the first end. The other end has sent something, and reads all.
	beside := func(t *testing.T, ends [2]socket, first, second string) {
		var all sync.WaitGroup
		defer all.Wait()
		defer ends[0].Close()
		_, err := ends[1].Write([]byte("two"))
		require.NoError(t, err)
		all.Go(func() { _, _ = io.Copy(io.Discard, ends[1]); ends[1].Close() })
		got, begin := make(chan outcome, 1), make(chan struct{})
		go func() { <-begin; got <- calls[second](ends[0]) }()
		close(begin)
		o := calls[first](ends[0])
		require.Contains(t, mayEnd(first, second), o.cause, "%s beside %s", first, second)
		o = <-got
		require.Contains(t, mayEnd(second, first), o.cause, "%s beside %s", second, first)
	}
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for first := range calls {
			for second := range calls {
				if first > second {
					continue
				}
				for range 10 {
					w := twin(t, ln, func() (a, b net.Conn, stop func(), err error) { return pipe(f) })
					beside(t, w.tcp, first, second)
					beside(t, w.ours, first, second)
				}
			}
		}
	})
}
