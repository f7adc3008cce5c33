package listen

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

func TestAPeerThatIsNotAllowedIsRefused(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	good, bad := newLink(t, table, nil), newLink(t, table, nil)
	l := table.Listen(7, Config{Backlog: 1, Allow: func(p *link.Peer) error {
		if p == bad.near.pool.Peer() {
			return errors.New("not this one")
		}
		return nil
	}})
	for range 3 { // each gives its place in the backlog back
		_, err := bad.dial(context.Background(), 7)
		require.ErrorIs(t, err, syscall.EACCES)
	}
	c := good.mustDial(t, 7)
	mustAccept(t, l).Pair.Close()
	c.Close()
	require.NoError(t, l.Close())
	noPairs(t, good)
	noPairs(t, bad)
}

// While one listener decides, other connections of the link are made.
func TestADecisionThatTakesLongHoldsNothingUp(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	k := newLink(t, table, nil)
	asked, answer := make(chan struct{}), make(chan error)
	slow := table.Listen(7, Config{Backlog: 2, Allow: func(*link.Peer) error { asked <- struct{}{}; return <-answer }})
	fast := table.Listen(8, Config{})
	defer fast.Close()
	for _, end := range []struct {
		answer error
		close  bool // before the answer
		want   error
	}{
		{nil, false, nil}, {errors.New("no"), false, syscall.EACCES}, {errors.New("no"), true, syscall.EACCES},
	} {
		dialled := make(chan error, 1)
		go func() {
			c, err := k.dial(context.Background(), 7)
			if err == nil {
				c.Close()
			}
			dialled <- err
		}()
		<-asked
		c := k.mustDial(t, 8)
		mustAccept(t, fast).Pair.Close()
		c.Close()
		if end.close {
			require.NoError(t, slow.Close())
		}
		answer <- end.answer
		require.ErrorIs(t, <-dialled, end.want)
		if end.want == nil {
			mustAccept(t, slow).Pair.Close()
		}
	}
	noPairs(t, k)
}

// A link goes down while a listener decides about a connection over it.
func TestALinkThatEndsDuringADecision(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	k := newLink(t, table, nil)
	asked, answer := make(chan struct{}), make(chan error)
	l := table.Listen(7, Config{Backlog: 1, Allow: func(*link.Peer) error { asked <- struct{}{}; return <-answer }})
	dialled := make(chan error, 1)
	go func() {
		_, err := k.far.dials.Dial(context.Background(), time.Now().Add(testTimeout), helloTo(7))
		dialled <- err
	}()
	<-asked
	peer := k.near.pool.Peer()
	peer.Fail(errors.New("cut"))
	require.Error(t, <-dialled)
	<-peer.Done()
	answer <- nil
	// The place is free again.
	other := newLink(t, table, nil)
	go func() { <-asked; answer <- nil }()
	c := other.mustDial(t, 7)
	mustAccept(t, l).Pair.Close()
	c.Close()
	require.NoError(t, l.Close())
}
