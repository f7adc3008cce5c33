package dial

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// testTimeout limits everything that must not hang.
const testTimeout = 30 * time.Second

// listener is the far side of a link: it hands each Hello to the test, which answers.
type listener struct {
	peer   *link.Peer
	pool   *bounce.Pool
	hellos chan *hello.Hello
}

func (l *listener) Open(p *link.Peer) link.Handler {
	l.peer, l.pool = p, bounce.NewPool(p, bounce.Options{})
	return l
}

func (l *listener) Message(m []byte) error {
	msg, err := hello.Parse(m)
	if h, ok := msg.(*hello.Hello); ok {
		l.hellos <- h
	}
	return err
}

func (l *listener) Down(error) { l.pool.Down() }

func (l *listener) next(t *testing.T) *hello.Hello {
	t.Helper()
	select {
	case h := <-l.hellos:
		return h
	case <-time.After(testTimeout):
		t.Fatal("no Hello has come")
		return nil
	}
}

// accept answers a Hello with a pair.
func (l *listener) accept(t *testing.T, h *hello.Hello) *bounce.Pair {
	t.Helper()
	pair, err := l.pool.NewPair()
	require.NoError(t, err)
	require.NoError(t, pair.Connect(bounce.Endpoint(h.Endpoint)))
	a := hello.HelloAck{Slot: h.Endpoint.Slot, Gen: h.Endpoint.Gen, Endpoint: hello.Endpoint(pair.Endpoint())}
	require.NoError(t, l.peer.Send(link.ServiceSDP, a.Marshal()))
	return pair
}

func (l *listener) refuse(t *testing.T, h *hello.Hello, r hello.Refuse) {
	t.Helper()
	r.Slot, r.Gen = h.Endpoint.Slot, h.Endpoint.Gen
	require.NoError(t, l.peer.Send(link.ServiceSDP, r.Marshal()))
}

// dialler is the near side.
type dialler struct {
	peer  *link.Peer
	pool  *bounce.Pool
	table *Table
	bad   chan error // what is wrong with an answer
}

func (d *dialler) Open(p *link.Peer) link.Handler {
	d.peer, d.pool = p, bounce.NewPool(p, bounce.Options{})
	d.table = NewTable(d.pool)
	return d
}

func (d *dialler) Message(m []byte) (err error) {
	msg, err := hello.Parse(m)
	switch msg := msg.(type) {
	case *hello.HelloAck:
		err = d.table.Ack(msg)
	case *hello.Refuse:
		err = d.table.Refuse(msg)
	}
	if err != nil {
		d.bad <- err
	}
	return err
}

func (d *dialler) Down(error) {
	d.table.Down()
	d.pool.Down()
}

func linked(t *testing.T) (*dialler, *listener) {
	t.Helper()
	leak.Check(t)
	x, y := ntbmem.Pair(1 << 20)
	d, l := &dialler{bad: make(chan error, 1)}, &listener{hellos: make(chan *hello.Hello, 16)}
	near, far := link.NewNode(link.MakeID(1, 1)), link.NewNode(link.MakeID(1, 2))
	near.Register(link.ServiceSDP, d)
	far.Register(link.ServiceSDP, l)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	up := make(chan error, 1)
	go func() {
		_, err := far.Up(ctx, y)
		up <- err
	}()
	_, err := near.Up(ctx, x)
	require.NoError(t, err)
	require.NoError(t, <-up)
	t.Cleanup(func() { near.Close(); far.Close() })
	return d, l
}

type result struct {
	pair *bounce.Pair
	err  error
}

func (d *dialler) dial(ctx context.Context) <-chan result {
	done := make(chan result, 1)
	go func() {
		pair, err := d.table.Dial(ctx, time.Now().Add(testTimeout), hello.Hello{Version: hello.Version, From: 40000, To: 80})
		done <- result{pair, err}
	}()
	return done
}

func ended(t *testing.T, done <-chan result) result {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(testTimeout):
		t.Fatal("Dial does not return")
		return result{}
	}
}

// unused waits until no connection holds memory of the dialling side.
func (d *dialler) unused(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { _, n := d.pool.Stats(); return n == 0 }, testTimeout, time.Millisecond)
}

func TestADialThatIsAccepted(t *testing.T) {
	d, l := linked(t)
	done := d.dial(t.Context())
	h := l.next(t)
	require.Equal(t, uint16(80), h.To)
	far := l.accept(t, h)
	r := ended(t, done)
	require.NoError(t, r.err)
	_, err := far.Write([]byte("hello"))
	require.NoError(t, err)
	b := make([]byte, 5)
	_, err = r.pair.Read(b)
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))
	r.pair.Close()
	far.Close()
	d.unused(t)
}

func TestADialThatIsRefused(t *testing.T) {
	d, l := linked(t)
	for reason, want := range map[hello.Reason]error{
		hello.NotListening: syscall.ECONNREFUSED,
		hello.BacklogFull:  errBacklog,
		hello.WindowFull:   syscall.ENOBUFS,
		hello.AddressTaken: ErrAddressTaken,
		hello.BadVersion:   syscall.EPROTONOSUPPORT,
		hello.Forbidden:    syscall.EACCES,
		hello.TooMany:      syscall.EAGAIN,

		hello.UnknownSource: ErrUnknownSource,
	} {
		done := d.dial(t.Context())
		r := hello.Refuse{Version: hello.Version, Reason: reason}
		if reason == hello.BadVersion {
			r.Version++
		}
		l.refuse(t, l.next(t), r)
		require.ErrorIs(t, ended(t, done).err, want, "%v", reason)
		d.unused(t)
	}
	done := d.dial(t.Context())
	l.refuse(t, l.next(t), hello.Refuse{Version: hello.Version, Reason: hello.OtherProcess, Process: 9})
	redirected := new(RedirectError)
	require.ErrorAs(t, ended(t, done).err, &redirected)
	require.Equal(t, 9, redirected.Process)
	d.unused(t)
}

// The end of a dial's context leaves the memory to the answer, which the peer still
// sends.
func TestADialThatEndsBeforeItsAnswer(t *testing.T) {
	d, l := linked(t)
	for _, answer := range []func(h *hello.Hello){
		func(h *hello.Hello) {
			l.refuse(t, h, hello.Refuse{Version: hello.Version, Reason: hello.NotListening})
		},
		func(h *hello.Hello) {
			far := l.accept(t, h)
			_, err := far.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET) // nobody took it
			far.Close()
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := d.dial(ctx)
		h := l.next(t)
		cancel()
		require.ErrorIs(t, ended(t, done).err, context.Canceled)
		_, held := d.pool.Stats()
		require.Equal(t, 1, held)
		answer(h)
		d.unused(t)
	}
	_, err := d.table.Dial(t.Context(), time.Now(), hello.Hello{Version: hello.Version, From: 40000, To: 80})
	require.ErrorIs(t, err, context.DeadlineExceeded, "nobody answers in time")
	l.refuse(t, l.next(t), hello.Refuse{Version: hello.Version, Reason: hello.NotListening})
	d.unused(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, ended(t, d.dial(ctx)).err, context.Canceled)
}

func TestADialEndsWithItsLink(t *testing.T) {
	d, l := linked(t)
	done := d.dial(t.Context())
	l.next(t)
	d.peer.Fail(errors.New("cut"))
	require.ErrorIs(t, ended(t, done).err, ErrLinkDown)
	require.ErrorIs(t, ended(t, d.dial(t.Context())).err, ErrLinkDown)
}

// An answer to no Hello is a violation of the protocol.
func TestAnAnswerThatNobodyWaitsFor(t *testing.T) {
	for _, m := range [][]byte{
		(&hello.HelloAck{Slot: 3, Gen: 1}).Marshal(),
		(&hello.Refuse{Version: hello.Version, Slot: 3, Gen: 1, Reason: hello.NotListening}).Marshal(),
	} {
		d, l := linked(t)
		require.NoError(t, l.peer.Send(link.ServiceSDP, m))
		select {
		case err := <-d.bad:
			require.ErrorIs(t, err, hello.ErrMalformed)
		case <-time.After(testTimeout):
			t.Fatal("it was taken")
		}
		require.Eventually(t, func() bool { return !d.peer.Up() }, testTimeout, time.Millisecond)
	}
}
