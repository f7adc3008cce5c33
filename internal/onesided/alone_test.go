package onesided

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/stretchr/testify/require"
)

// alone returns the space of a job of one PE, a context of it, and an object of 8 words of 8
// bytes.
func alone(t *testing.T, fence bool, barrier func() error) (*Ctx, Object) {
	t.Helper()
	m := symheap.NewGo(1<<20, 7)
	t.Cleanup(func() { symheap.ForgetGo(7) })
	s := New(0, 1, symheap.New(m, symheap.Shared), fence, barrier, func(string, int, error) error { return nil })
	off, err := s.Heap().Alloc(64, 64)
	require.NoError(t, err)
	c := new(Ctx)
	c.Init(s, s.Peers())
	return c, Object{Space: s, Off: off, N: 8}
}

// The system refuses the barrier all of a sudden. A PE may then overlook that this one is
// about to sleep. Its store is found all the same.
func TestAWaitDoesNotSleepWithoutABarrier(t *testing.T) {
	failed := make(chan struct{}, 1)
	var calls atomic.Int32
	_, o := alone(t, false, func() error {
		if calls.Add(1) == 3 {
			failed <- struct{}{}
		}
		return errors.New("refused")
	})
	go func() {
		<-failed
		symheap.Atomic(o.Space.Heap().Base, o.Off, symheap.Set, 8, 1, 0) // this PE is not woken
	}()
	_, err := o.WaitUntil(context.Background(), 0, Condition{Size: 8, V: 1})
	require.NoError(t, err)
	require.GreaterOrEqual(t, calls.Load(), int32(3), "it tries again")
}

// The specification's wait for all elements requires that each has been as it should be,
// not all at the same moment.
func TestAWaitForAllTakesElementsOneByOne(t *testing.T) {
	c, o := alone(t, true, nil)
	saw := make(chan struct{})
	go func() {
		c.Do(symheap.Set, o, 0, 8, 1, 0)
		<-saw
		c.Do(symheap.Set, o, 0, 8, 2, 0)
		c.Do(symheap.Set, o, 1, 8, 1, 0)
		c.Do(symheap.Set, o, 2, 8, 1, 0)
	}()
	m := Many{Object: o.Slice(0, 3, 8), Condition: Condition{Size: 8, V: 1}}
	seen := 0
	ctx := context.Background()
	require.NoError(t, o.Space.Wait(ctx, func() bool { return m.allFrom(&seen) || seen == 1 }))
	close(saw)
	require.NoError(t, o.Space.Wait(ctx, func() bool { return m.allFrom(&seen) }))
	require.Equal(t, uint64(2), o.Word(0, 8))
}

func TestConditionsOfAllKindsOfWords(t *testing.T) {
	const top8, top4 = 1 << 63, 1 << 31
	for _, tt := range []struct {
		size     uintptr
		signed   bool
		low, top uint64 // low is less than top
	}{
		{8, false, 5, top8},
		{8, true, top8, 5},
		{8, true, math.MaxUint64, 0}, // -1 and 0
		{4, false, 5, top4},
		{4, true, top4, 5},
		{4, true, math.MaxUint32, 0},
		{4, false, 5 | 7<<32, 6}, // what is above the word does not count
		{4, true, 5 | 7<<32, 6},
	} {
		for op, want := range [...][3]bool{ // for low and top, equal words, top and low
			Eq: {false, true, false}, Ne: {true, false, true},
			Gt: {false, false, true}, Ge: {false, true, true},
			Lt: {true, false, false}, Le: {true, true, false},
		} {
			for i, words := range [][2]uint64{{tt.low, tt.top}, {tt.top, tt.top}, {tt.top, tt.low}} {
				c := Condition{tt.size, tt.signed, Cmp(op), words[1]}
				require.Equal(t, want[i], c.Holds(words[0]), "%+v of %#x", c, words[0])
			}
		}
	}
}

// Elements of every size are stored and loaded as they are, and touch no neighbour.
func TestElementsOfAllSizes(t *testing.T) {
	c, o := alone(t, true, nil)
	for _, size := range []uintptr{1, 2, 4, 8, 16} {
		some := Object{o.Space, o.Off, int(64 / size)}
		clear(o.Local(8))
		c.P(some, 1, size, 0x0102030405060708, 0x1112131415161718, 0)
		lo, hi := c.G(some, 1, size, 0)
		want := uint64(0x0102030405060708)
		if size < 8 {
			want &= 1<<(8*size) - 1
		}
		require.Equal(t, want, lo)
		require.Equal(t, size == 16, hi == 0x1112131415161718)
		local := o.Local(8)
		require.Equal(t, make([]byte, size), local[:size])
		require.Equal(t, make([]byte, 64-2*size), local[2*size:])
	}
}

// Who finds that a PE is dead finds why.
func TestAPEIsDeadForAReason(t *testing.T) {
	m := symheap.NewGo(1<<20, 7)
	t.Cleanup(func() { symheap.ForgetGo(7) })
	s := New(0, 2, symheap.New(m, symheap.Shared), false, nil, func(_ string, _ int, err error) error { return err })
	off, err := s.Heap().Alloc(8, 8)
	require.NoError(t, err)
	c := new(Ctx)
	c.Init(s, s.Peers())
	why := errors.New("it has ended")
	called := false
	s.Fail(why, func() {
		called = true
		p := s.Peers()[1]
		p.Lost()
		_, err := c.reach(p)
		require.ErrorIs(t, err, why)
		c.Do(symheap.Add, Object{Space: s, Off: off, N: 1}, 0, 8, 1, 1)
		require.ErrorIs(t, c.Err(), why)
		select {
		case <-s.Failed():
			t.Error("waits end before the PE is dead")
		default:
		}
	})
	require.True(t, called)
	<-s.Failed()
}
