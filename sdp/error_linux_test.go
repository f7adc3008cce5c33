package sdp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// tcpConn is what is compared of a *net.TCPConn and a *Conn.
type tcpConn interface {
	socket
	io.ReaderFrom
	io.WriterTo
	syscall.Conn
	SetNoDelay(bool) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
	MultipathTCP() (bool, error)
}

var (
	_ tcpConn = (*net.TCPConn)(nil)
	_ tcpConn = (*Conn)(nil)
)

// fails is a call that fails: of an endpoint, after something has happened to both.
type fails struct {
	before func(c, peer tcpConn) error
	call   func(c tcpConn) error
}

// told is a description of an error without what differs from one connection to another.
func told(c net.Conn, err error) string {
	if err == nil {
		return "nil"
	}
	var b strings.Builder
	addresses := []string{c.LocalAddr().String(), "local", c.RemoteAddr().String(), "remote"}
	if len(addresses[0]) < len(addresses[2]) { // port 4096 begins port 40961
		addresses = append(addresses[2:], addresses[:2]...)
	}
	b.WriteString(strings.NewReplacer(addresses...).Replace(err.Error()))
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		b.WriteString(" | op " + op.Op + ", net " + op.Net)
		if op.Timeout() {
			b.WriteString(", timeout")
		}
		if op.Temporary() {
			b.WriteString(", temporary")
		}
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		b.WriteString(" | call " + call.Syscall)
		if _, ok := call.Err.(syscall.Errno); ok {
			b.WriteString(", number")
		}
	}
	for _, is := range append(causes, context.Canceled, context.DeadlineExceeded, errOfOthers) {
		if errors.Is(err, is) {
			b.WriteString(" | is " + is.Error())
		}
	}
	return b.String()
}

var errOfOthers = errors.New("another's error")

// broken is a reader and a writer that fails.
type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, errOfOthers }
func (broken) Write([]byte) (int, error) { return 0, errOfOthers }

// plain hides all methods of a reader but Read.
type plain struct{ io.Reader }

// failing are calls that fail.
func failing(file func() *os.File) map[string]fails {
	closed := func(c, _ tcpConn) error { return c.Close() }
	shut := func(c, _ tcpConn) error { return c.CloseWrite() }
	reset := func(_, peer tcpConn) error { return errors.Join(peer.SetLinger(0), peer.Close()) }
	late := func(c, _ tcpConn) error { return c.SetDeadline(time.Unix(1, 0)) }
	open := func(_, peer tcpConn) error { return second(peer.Write([]byte("data"))) }
	write := func(c tcpConn) error { return second(c.Write([]byte("x"))) }
	read := func(c tcpConn) error { return second(c.Read(make([]byte, 1))) }
	readFrom := func(c tcpConn) error { return second(c.ReadFrom(plain{strings.NewReader("data")})) }
	sendFile := func(c tcpConn) error { return second(c.ReadFrom(file())) }
	writeTo := func(c tcpConn) error { return second(c.WriteTo(io.Discard)) }
	buffers := func(c tcpConn) error {
		v := net.Buffers{[]byte("one"), []byte("two")}
		if ours, ok := c.(*Conn); ok {
			return second(ours.WriteBuffers(&v))
		}
		return second(v.WriteTo(c))
	}
	control := func(call func(syscall.RawConn) error) func(tcpConn) error {
		return func(c tcpConn) error {
			raw, err := c.SyscallConn()
			if err != nil {
				return err
			}
			return call(raw)
		}
	}
	done := func(uintptr) bool { return true }
	return map[string]fails{
		"Read, closed":       {closed, read},
		"Read, late":         {late, read},
		"Read, reset":        {reset, read},
		"Write, closed":      {closed, write},
		"Write, late":        {late, write},
		"Write, shut":        {shut, write},
		"Write, reset":       {reset, write},
		"ReadFrom, closed":   {closed, readFrom},
		"ReadFrom, late":     {late, readFrom},
		"ReadFrom, shut":     {shut, readFrom},
		"ReadFrom, reset":    {reset, readFrom},
		"ReadFrom, broken":   {open, func(c tcpConn) error { return second(c.ReadFrom(broken{})) }},
		"a file, closed":     {closed, sendFile},
		"a file, shut":       {shut, sendFile},
		"a file, reset":      {reset, sendFile},
		"WriteTo, closed":    {closed, writeTo},
		"WriteTo, late":      {late, writeTo},
		"WriteTo, reset":     {reset, writeTo},
		"WriteTo, broken":    {open, func(c tcpConn) error { return second(c.WriteTo(broken{})) }},
		"buffers, closed":    {closed, buffers},
		"buffers, late":      {late, buffers},
		"buffers, shut":      {shut, buffers},
		"buffers, reset":     {reset, buffers},
		"Close, closed":      {closed, tcpConn.Close},
		"CloseRead, closed":  {closed, tcpConn.CloseRead},
		"CloseRead, reset":   {reset, tcpConn.CloseRead},
		"CloseWrite, closed": {closed, tcpConn.CloseWrite},
		"CloseWrite, reset":  {reset, tcpConn.CloseWrite},
		"deadline, closed":   {closed, func(c tcpConn) error { return c.SetDeadline(time.Time{}) }},
		"linger, closed":     {closed, func(c tcpConn) error { return c.SetLinger(0) }},
		"no delay, closed":   {closed, func(c tcpConn) error { return c.SetNoDelay(true) }},
		"buffer, closed":     {closed, func(c tcpConn) error { return c.SetReadBuffer(1) }},
		"buffer of 0":        {open, func(c tcpConn) error { return c.SetReadBuffer(0) }},
		"buffer of -1":       {open, func(c tcpConn) error { return c.SetWriteBuffer(-1) }},
		"MPTCP":              {open, func(c tcpConn) error { return second(c.MultipathTCP()) }},
		"Control, closed":    {closed, control(func(r syscall.RawConn) error { return r.Control(func(uintptr) {}) })},
		"raw Read, closed":   {closed, control(func(r syscall.RawConn) error { return r.Read(done) })},
		"raw Write, closed":  {closed, control(func(r syscall.RawConn) error { return r.Write(done) })},
	}
}

// Errors have net's types and texts.
func TestErrorsReadAsNets(t *testing.T) {
	f := open(t, "shm:"+fabrictest.Name(t))
	defer f.Close()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte("data"), 0o600))
	file := func() *os.File {
		file, err := os.Open(name)
		require.NoError(t, err)
		t.Cleanup(func() { file.Close() })
		return file
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer tcp.Close()
	ours, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ours.Close()
	connect := func(dial func(network, address string) (net.Conn, error), ln net.Listener) (c, peer tcpConn) {
		a, err := dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		b, err := ln.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { a.Close(); b.Close() })
		return a.(tcpConn), b.(tcpConn)
	}
	for name, fail := range failing(file) {
		a, b := connect(net.Dial, tcp)
		require.NoError(t, fail.before(a, b), name)
		settleReset(t, a.(*net.TCPConn), b)
		want := told(a, fail.call(a))
		c, d := connect(f.Dial, ours)
		require.IsType(t, (*Conn)(nil), c)
		require.NoError(t, fail.before(c, d), name)
		require.Equal(t, want, told(c, fail.call(c)), name)
	}
}

// settleReset waits until a reset has arrived, if peer was closed.
func settleReset(t *testing.T, c *net.TCPConn, peer tcpConn) {
	t.Helper()
	if peer.SetNoDelay(true) == nil {
		return
	}
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		state := 0
		require.NoError(t, raw.Control(func(fd uintptr) { state, _, _ = tcpSocket(t, int(fd)) }))
		return state == tcpClose
	}, time.Minute, 10*time.Microsecond)
}

// Dials and listeners fail as net's do, but for the network's name and the address.
func TestErrorsOfDialsReadAsNets(t *testing.T) {
	f := open(t, "shm:"+fabrictest.Name(t))
	defer f.Close()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	told := func(network, address string, err error) string {
		require.Error(t, err)
		text, _, _ := strings.Cut(err.Error(), ": nobody listens there in fabric ") // what a refusal says besides
		text = strings.NewReplacer(network, "net", address, "address").Replace(text)
		if call := (*os.SyscallError)(nil); errors.As(err, &call) {
			text += " | call " + call.Syscall
		}
		for _, is := range []error{context.Canceled, context.DeadlineExceeded, syscall.ECONNREFUSED, net.ErrClosed} {
			if errors.Is(err, is) {
				text += " | is " + is.Error()
			}
		}
		return text
	}
	outcomes := func(network string, listen func(network, address string) (net.Listener, error), dial func(ctx context.Context, network, address string) (net.Conn, error)) []string {
		ln, err := listen(network, "localhost:0")
		require.NoError(t, err)
		address := ln.Addr().String()
		var all []string
		add := func(err error) { all = append(all, told(network, address, err)) }
		add(second(dial(canceled, network, address)))
		add(second(dial(late, network, address)))
		require.NoError(t, ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Unix(1, 0)))
		add(second(ln.Accept()))
		require.NoError(t, ln.Close())
		add(second(ln.Accept()))
		add(ln.Close())
		add(second(dial(context.Background(), network, address)))
		return all
	}
	want := outcomes("tcp", net.Listen, (&net.Dialer{}).DialContext)
	require.Equal(t, want, outcomes("sdp", f.Listen, f.DialContext))
	require.Equal(t, want, outcomes("tcp", f.Listen, f.DialContext))
}

// A dial by network "sdp" to a process that ends meanwhile is refused or reset.
func TestDialsWhileTheListenersProcessEnds(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	a := open(t, name)
	defer a.Close()
	for range 30 {
		b, err := Open(name + "?spin=21us") // with a process number of its own
		require.NoError(t, err)
		ln, err := b.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		begun, failed := make(chan struct{}, 1), make(chan error, 1)
		go func() {
			for {
				c, err := a.Dial("sdp", ln.Addr().String())
				if err != nil {
					failed <- err
					return
				}
				c.Close()
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		}()
		<-begun
		require.NoError(t, b.Close())
		err = <-failed
		require.True(t, errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET), err)
		call := (*os.SyscallError)(nil)
		require.ErrorAs(t, err, &call)
		require.Equal(t, "connect", call.Syscall)
	}
}

// A process that ends while it makes a link hangs up on the cable.
func TestADialToAProcessThatHangsUpIsRefused(t *testing.T) {
	s := "shm:" + fabrictest.Name(t)
	f := open(t, s)
	defer f.Close()
	parsed, err := spec.Parse(s)
	require.NoError(t, err)
	dir, err := hostdir.Open(parsed.Place(), true)
	require.NoError(t, err)
	defer dir.Close()
	process, err := dir.ClaimProcess()
	require.NoError(t, err)
	cables, err := dir.Listen(process)
	require.NoError(t, err)
	defer cables.Close()
	port, err := dir.ClaimPort(0)
	require.NoError(t, err)
	go func() {
		for {
			c, err := cables.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096)) // what is not read would make it a reset
			c.Close()
		}
	}()
	_, err = f.Dial("sdp", net.JoinHostPort("localhost", strconv.Itoa(port)))
	require.True(t, errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET), err)
	require.NotErrorIs(t, err, io.EOF)
	require.ErrorAs(t, err, new(*os.SyscallError))
}
