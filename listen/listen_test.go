package listen

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// dialled is the result of a dial.
type dialled struct {
	pair *bounce.Pair
	err  error
}

func (l *linked) goDial(ctx context.Context, port uint16) <-chan dialled {
	c := make(chan dialled, 1)
	go func() {
		pair, err := l.dial(ctx, port)
		c <- dialled{pair, err}
	}()
	return c
}

// shutAtHello holds up the first answer to a Hello, and all that follows it.
func shutAtHello() func(*valve, any) {
	var once sync.Once
	return func(v *valve, msg any) {
		if _, ok := msg.(*hello.Hello); ok {
			once.Do(v.shut)
		}
	}
}

// isReset waits until the peer has reset a connection, and closes it.
func isReset(t *testing.T, c *bounce.Pair) {
	t.Helper()
	returns(t, "Read", func() {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v, want ECONNRESET", err)
		}
	})
	c.Close()
}

func TestAPeerThatIsHeldUpHoldsUpNobodyElse(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	slow, other := newLink(t, table, shutAtHello()), newLink(t, table, nil)
	first := table.Listen(1, Config{})
	held := slow.goDial(context.Background(), 1)
	returns(t, "the answer's store", func() { <-slow.valve.held })

	returns(t, "Listen", func() { table.Listen(2, Config{}).Close() })
	returns(t, "a dial that nobody listens for", func() {
		if _, err := other.dial(context.Background(), 3); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v, want ECONNREFUSED", err)
		}
	})
	c := other.mustDial(t, 1)
	mustAccept(t, first).Pair.Close()
	c.Close()

	// Another connection waits for Accept. The one that is being answered must be
	// delivered too.
	waits := other.mustDial(t, 1)
	returns(t, "Close", func() { first.Close() })
	isReset(t, waits)
	again := table.Listen(1, Config{})
	c = other.mustDial(t, 1)
	mustAccept(t, again).Pair.Close()
	c.Close()

	slow.valve.release()
	d := <-held
	require.NoError(t, d.err)
	isReset(t, d.pair)
	again.Close()
	noPairs(t, slow, other)
}

func TestCloseDoesNotWaitForAPeerThatIsHeldUp(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	slow, other := newLink(t, table, nil), newLink(t, table, nil)
	l := table.Listen(1, Config{})
	a, b := slow.mustDial(t, 1), other.mustDial(t, 1)
	slow.valve.shut()
	returns(t, "Close", func() { l.Close() })
	isReset(t, b)
	slow.valve.release()
	isReset(t, a)
	noPairs(t, slow, other)
}

// A Hello that is being answered counts towards the backlog.
func TestTheBacklogIsExact(t *testing.T) {
	leak.Check(t)
	for _, backlog := range []int{1, 2, 3} {
		table := NewTable()
		slow, other := newLink(t, table, shutAtHello()), newLink(t, table, nil)
		refused := make(chan hello.Reason, 1)
		other.far.before = func(msg any) {
			if r, ok := msg.(*hello.Refuse); ok {
				select {
				case refused <- r.Reason:
				default:
				}
			}
		}
		l := table.Listen(1, Config{Backlog: backlog})
		held := slow.goDial(context.Background(), 1)
		returns(t, "the answer's store", func() { <-slow.valve.held })
		var waiting []*bounce.Pair
		for range backlog - 1 {
			waiting = append(waiting, other.mustDial(t, 1))
		}
		ctx, cancel := context.WithCancel(context.Background())
		one := other.goDial(ctx, 1)
		returns(t, "the dial of one too many", func() {
			if r := <-refused; r != hello.BacklogFull {
				t.Errorf("refused since %v", r)
			}
		})
		cancel()
		require.ErrorIs(t, (<-one).err, context.Canceled)

		slow.valve.release()
		d := <-held
		require.NoError(t, d.err)
		waiting = append(waiting, d.pair)
		for range backlog {
			mustAccept(t, l).Pair.Close()
		}
		waiting = append(waiting, other.mustDial(t, 1))
		l.Close()
		for _, c := range waiting {
			c.Close()
		}
		noPairs(t, slow, other)
	}
}

func TestAHelloThatFailsGivesItsPlaceBack(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	k := newLink(t, table, nil)
	l := table.Listen(1, Config{Backlog: 1})
	var all []*bounce.Pair
	for {
		p, err := k.near.pool.NewPair()
		if err != nil {
			require.ErrorIs(t, err, syscall.ENOBUFS)
			break
		}
		all = append(all, p)
	}
	require.NotEmpty(t, all)
	for range 3 {
		_, err := k.dial(context.Background(), 1)
		require.ErrorIs(t, err, syscall.ENOBUFS)
	}
	for _, p := range all {
		k.near.pool.Discard(p)
	}
	for range 3 {
		bad := &hello.Hello{Version: hello.Version, To: 1, Endpoint: hello.Endpoint{Slot: 1 << 31}}
		require.ErrorIs(t, table.Hello(k.near.pool, bad), bounce.ErrBadGrant)
	}
	c := k.mustDial(t, 1)
	mustAccept(t, l).Pair.Close()
	c.Close()
	l.Close()
	noPairs(t, k)
}

// Whenever Close comes, each connection is accepted, refused or reset.
func TestCloseAtAnyMomentLeavesNothing(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	links := []*linked{newLink(t, table, nil), newLink(t, table, nil)}
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	returns(t, "all rounds", func() {
		for range rounds {
			l := table.Listen(1, Config{Backlog: 2})
			var sides sync.WaitGroup
			var accepted atomic.Int64
			sides.Go(func() {
				for {
					a, err := l.Accept()
					if err != nil {
						return
					}
					accepted.Add(1)
					a.Pair.Close()
				}
			})
			begun := make(chan struct{}, 4)
			for _, k := range links {
				for range 2 {
					sides.Go(func() {
						begun <- struct{}{}
						c, err := k.dial(context.Background(), 1)
						if err == nil {
							c.Close()
						} else if !errors.Is(err, syscall.ECONNREFUSED) {
							t.Error("dial:", err)
						}
					})
				}
			}
			<-begun
			l.Close()
			sides.Wait()
		}
	})
	noPairs(t, links...)
}

// When a table fails, its listeners return the connections that wait, and after them the error.
// Those that are made later are as those before.
func TestATableThatFailsEndsItsListeners(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	l := newLink(t, table, nil)
	waiting, idle := table.Listen(1, Config{}), table.Listen(0, Config{TCP: &TCP{Socket: Socket{1, 2}}})
	dialled := l.mustDial(t, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := idle.Accept()
		ended <- err
	}()
	why := errors.New("why")
	require.Equal(t, 2, table.Fail(why))
	returns(t, "Accept", func() { require.Equal(t, why, <-ended) })
	accepted := mustAccept(t, waiting)
	for range 2 {
		_, err := waiting.Accept()
		require.Equal(t, why, err)
	}
	_, err := l.dial(t.Context(), 1)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	late := table.Listen(3, Config{})
	_, err = late.Accept()
	require.Equal(t, why, err)
	require.Equal(t, 0, table.Fail(why))
	for _, x := range []*Listener{waiting, idle, late} {
		require.NoError(t, x.Close())
		_, err = x.Accept()
		require.Equal(t, ErrClosed, err)
	}
	accepted.Pair.Close()
	dialled.Close()
	noPairs(t, l)
}
