package mplite

import (
	"bytes"
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/shmem"
)

var background = context.Background()

func barrier(t require.TestingT, c *Comm) { require.NoError(t, c.w.Team().Barrier(background)) }

// Two PEs both send a megabyte first.
func TestLargeMessagesBothWaysAtOnce(t *testing.T) {
	const size = 1 << 20
	t.Run("sends that find room return", func(t *testing.T) {
		each(t, []int{2}, Options{}, func(t *testing.T, c *Comm) {
			other, got := 1-c.PE(), make([]byte, size)
			require.NoError(t, Send(background, c, filled(size, c.PE()), other, 1))
			_, err := Recv(background, c, got, other, 1)
			require.NoError(t, err)
			require.True(t, bytes.Equal(filled(size, other), got))
			require.Equal(t, uint64(1), c.Stats().Buffered)
		})
	})
	t.Run("others go on while this PE receives", func(t *testing.T) {
		each(t, []int{2}, Options{Buffer: 4096}, func(t *testing.T, c *Comm) {
			other, got := 1-c.PE(), make([]byte, size)
			send := ASend(c, filled(size, c.PE()), other, 1)
			_, err := Recv(background, c, got, other, 1)
			require.NoError(t, err)
			require.True(t, bytes.Equal(filled(size, other), got))
			_, err = send.Wait(background)
			require.NoError(t, err)
			require.Equal(t, uint64(1), c.Stats().Granted)
		})
	})
	t.Run("posted receives need no buffer", func(t *testing.T) {
		each(t, []int{2}, Options{Buffer: 64}, func(t *testing.T, c *Comm) {
			other := 1 - c.PE()
			got, err := symmetric(c, size)
			require.NoError(t, err)
			r := ARecv(c, got, other, 1)
			barrier(t, c)
			require.NoError(t, Send(background, c, filled(size, c.PE()), other, 1))
			_, err = r.Wait(background)
			require.NoError(t, err)
			require.True(t, bytes.Equal(filled(size, other), got))
			require.Equal(t, Stats{Sent: 1, Direct: 1, Received: 1}, c.Stats())
		})
	})
}

// There are many more messages than slots and buffers, and they are received in
// another order.
func TestASendNeverWaits(t *testing.T) {
	const count = 200
	for _, o := range []Options{{}, {Slots: 1, Buffer: 64}} {
		each(t, []int{1, 2}, o, func(t *testing.T, c *Comm) {
			other := c.NumPEs() - 1 - c.PE()
			var sends []*Request
			for i := range count {
				sends = append(sends, ASend(c, filled(i, i), other, i))
			}
			for i := count - 1; i >= 0; i-- {
				got := make([]byte, count)
				last, err := Recv(background, c, got, other, i)
				require.NoError(t, err)
				require.Equal(t, Last{other, i, i}, last)
				require.Equal(t, filled(i, i), got[:i])
			}
			for _, r := range sends {
				_, err := r.Wait(background)
				require.NoError(t, err)
			}
		})
	}
}

// The awaited message is behind more messages than are taken without a receive.
func TestAReceiveIsFoundBehindManyOthers(t *testing.T) {
	const count = maxUnexpected + 3*defaultSlots
	each(t, []int{2}, Options{}, func(t *testing.T, c *Comm) {
		if c.PE() == 0 {
			for i := range count {
				require.NoError(t, Send(background, c, []int32{int32(i)}, 1, 1))
			}
			require.NoError(t, Send[byte](background, c, nil, 1, 2))
			return
		}
		last, err := Recv(background, c, []byte(nil), 0, 2)
		require.NoError(t, err)
		require.Equal(t, Last{0, 2, 0}, last)
		for i := range count {
			var v [1]int32
			_, err := Recv(background, c, v[:], 0, AnyTag)
			require.NoError(t, err)
			require.Equal(t, int32(i), v[0])
		}
		require.EqualValues(t, count, c.Stats().Unexpected)
	})
}

// All PEs send to PE 0 as fast as they can. It serves them in turn.
func TestAnySourceStarvesNobody(t *testing.T) {
	const count = 300
	each(t, []int{3, 4}, Options{Slots: 4}, func(t *testing.T, c *Comm) {
		if c.PE() > 0 {
			for i := range count {
				require.NoError(t, Send(background, c, []uint32{uint32(i)}, 0, 5))
			}
			return
		}
		senders := c.NumPEs() - 1
		next := make([]uint32, senders+1)
		// Each PE that has a message is served before another is served twice.
		passed := make([]int, senders+1)
		for range count * senders {
			for pe := 1; pe <= senders; pe++ {
				_, found, err := c.AProbe(pe, 5)
				require.NoError(t, err)
				if found {
					passed[pe]++
				}
				require.LessOrEqual(t, passed[pe], senders, "PE %d was passed over", pe)
			}
			var v [1]uint32
			last, err := Recv(background, c, v[:], AnySource, 5)
			require.NoError(t, err)
			require.Equal(t, next[last.Source], v[0])
			next[last.Source]++
			passed[last.Source] = 0
		}
	})
}

func TestATooLongMessageIsAnErrorAndLost(t *testing.T) {
	for name, o := range map[string]Options{"buffered": {}, "granted": {Buffer: 64}} {
		t.Run(name, func(t *testing.T) {
			each(t, []int{2}, o, func(t *testing.T, c *Comm) {
				into, err := symmetric(c, 64)
				require.NoError(t, err)
				for _, size := range []int{8, 9, 5000} {
					if c.PE() == 0 {
						barrier(t, c)
						sends := []*Request{ASend(c, filled(size, 1), 1, 1), ASend(c, []byte{7}, 1, 1)}
						for _, r := range sends {
							_, err := r.Wait(background)
							require.NoError(t, err)
						}
						continue
					}
					r := ARecv(c, into[:min(size-1, 20)], 0, 1) // posted unless size is 8
					barrier(t, c)
					last, err := r.Wait(background)
					require.ErrorIs(t, err, ErrTooLong)
					require.Equal(t, Last{0, 1, size}, last)
					_, err = Recv(background, c, into, 0, 1)
					require.NoError(t, err)
					require.Equal(t, byte(7), into[0])
				}
			})
		})
	}
}

func TestProbeTellsWhatIsNext(t *testing.T) {
	each(t, []int{1, 2}, Options{}, func(t *testing.T, c *Comm) {
		other := c.NumPEs() - 1 - c.PE()
		_, found, err := c.AProbe(AnySource, 3)
		require.NoError(t, err)
		require.False(t, found)
		barrier(t, c)
		require.NoError(t, Send(background, c, []float64{1, 2, 3}, other, 3))
		for _, from := range []int{other, AnySource} {
			for _, tag := range []int{3, AnyTag} {
				last, err := c.Probe(background, from, tag)
				require.NoError(t, err)
				require.Equal(t, Last{other, 3, 24}, last)
			}
		}
		_, found, err = c.AProbe(other, 4)
		require.NoError(t, err)
		require.False(t, found)
		v := make([]float64, 3)
		r := ARecv(c, v, other, 3)
		done, err := r.Test()
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, []float64{1, 2, 3}, v)
	})
}

// A receive that the sender does not know of holds back the posting of a later one
// that takes the same messages. When it is done, the later one is posted.
func TestAReceiveIsPostedWhenThoseBeforeItAreDone(t *testing.T) {
	each(t, []int{2}, Options{}, func(t *testing.T, c *Comm) {
		into, err := symmetric(c, 100)
		require.NoError(t, err)
		if c.PE() == 0 {
			barrier(t, c)
			require.NoError(t, Send(background, c, filled(50, 1), 1, 1))
			barrier(t, c)
			require.NoError(t, Send(background, c, filled(60, 2), 1, 1))
			require.Equal(t, Stats{Sent: 2, Buffered: 1, Direct: 1}, c.Stats())
			return
		}
		first := make([]byte, 100)
		a, b := ARecv(c, first, AnySource, AnyTag), ARecv(c, into, 0, 1)
		barrier(t, c)
		_, err = a.Wait(background)
		require.NoError(t, err)
		barrier(t, c)
		_, err = b.Wait(background)
		require.NoError(t, err)
		require.Equal(t, filled(50, 1), first[:50])
		require.Equal(t, filled(60, 2), into[:60])
	})
}

func TestAWaitThatWasGivenUpGoesOn(t *testing.T) {
	each(t, []int{2}, Options{}, func(t *testing.T, c *Comm) {
		if c.PE() == 0 {
			v := make([]int64, 2)
			r := ARecv(c, v, 1, 1)
			soon, cancel := context.WithTimeout(background, 5*time.Millisecond)
			defer cancel()
			_, err := r.Wait(soon)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			barrier(t, c)
			_, err = r.Wait(background)
			require.NoError(t, err)
			require.Equal(t, []int64{3, 4}, v)
			return
		}
		barrier(t, c)
		require.NoError(t, Send(background, c, []int64{3, 4}, 0, 1))
	})
}

func TestMistakesOfTheCallerPanic(t *testing.T) {
	each(t, []int{1}, Options{}, func(t *testing.T, c *Comm) {
		for name, call := range map[string]func(){
			"PE":           func() { ASend(c, []byte{1}, 1, 0) },
			"source":       func() { ARecv(c, []byte{1}, -2, 0) },
			"tag":          func() { ASend(c, []byte{1}, 0, AnyTag) },
			"large tag":    func() { ASend(c, []byte{1}, 0, math.MaxInt32+1) },
			"tag of probe": func() { _, _, _ = c.AProbe(0, -2) },
		} {
			require.Panics(t, call, name)
		}
		c.begin()
		require.Panics(t, func() { c.Stats() }, "another goroutine")
		c.leave()
	})
	_, err := Options{Slots: maxSlots + 1}.withDefaults()
	require.Error(t, err)
}

// What another PE has written is checked.
func TestABadEntryEndsTheComm(t *testing.T) {
	bad := map[string]entry{
		"kind 0":           {},
		"kind":             {kind: 200},
		"reply as header":  {kind: post, word: 1 << 20, size: 10},
		"size":             {kind: small, size: -1},
		"large small":      {kind: small, size: 9},
		"tag":              {kind: small, size: 1, tag: -1},
		"place":            {kind: buffered, size: 100, word: 1 << 60},
		"size at place":    {kind: buffered, size: maxSize, word: 1 << 20},
		"unknown receive":  {kind: done, ref: 9},
		"unknown message":  {kind: piece, ref: 9, size: 1},
		"header as reply":  {kind: small + 100, size: 1},
		"unknown pull":     {kind: pulled + 100, ref: 9, size: 1},
		"unknown withdraw": {kind: pulled + 100, ref: 9, size: -1},
		"unknown grant":    {kind: grant + 100, ref: 9, size: 1, word: 1 << 20},
		"place of receive": {kind: post + 100, size: 100, word: 8},
	}
	for name, e := range bad {
		t.Run(name, func(t *testing.T) {
			run(t, 1, "mapped", "mem:bad", Options{}, func(outer *Comm) {
				c, err := Open(background, outer.w, Options{Slots: 4, Buffer: 64, Piece: 64})
				require.NoError(t, err)
				l := &c.links[0]
				if e.kind >= 100 && name != "kind" {
					e.kind -= 100
					l.reply(e)
				} else {
					l.header(e)
				}
				_, err = Recv(background, c, []byte{1}, 0, 1)
				require.ErrorContains(t, err, "no PE sends")
				require.ErrorIs(t, Send(background, c, []byte{1}, 0, 1), err)
				require.ErrorIs(t, c.Close(background), err)
			})
		})
	}
	t.Run("word", func(t *testing.T) {
		run(t, 1, "mapped", "mem:bad", Options{}, func(outer *Comm) {
			for k := range wordsPerPE {
				c, err := Open(background, outer.w, Options{Slots: 4, Buffer: 64, Piece: 64})
				require.NoError(t, err)
				shmem.P(c.ctx, c.words, k, 1000, 0)
				_, err = Recv(background, c, []byte{1}, 0, 1)
				require.ErrorContains(t, err, "no PE sends")
			}
		})
	})
}

func TestAClosedCommIsAnError(t *testing.T) {
	run(t, 1, "mapped", "mem:closed", Options{}, func(outer *Comm) {
		c, err := Open(background, outer.w, Options{})
		require.NoError(t, err)
		require.NoError(t, c.Close(background))
		require.ErrorIs(t, c.Close(background), ErrClosed)
		require.ErrorIs(t, Send(background, c, []byte{1}, 0, 1), ErrClosed)
		_, err = ARecv(c, []byte{1}, 0, 1).Test()
		require.ErrorIs(t, err, ErrClosed)
		_, err = c.Probe(background, 0, 1)
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestBuffersAreDividedAndJoined(t *testing.T) {
	b := newBuffers(640)
	var got []extent
	for {
		e, ok := b.alloc(65)
		if !ok {
			break
		}
		got = append(got, e)
	}
	require.Len(t, got, 5)
	for _, i := range []int{1, 3, 2, 0, 4} {
		b.release(got[i])
	}
	require.Equal(t, []extent{{0, 640}}, b.free)
	_, ok := b.alloc(641)
	require.False(t, ok)
}
