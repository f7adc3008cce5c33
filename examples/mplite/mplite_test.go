package mplite

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

var sizes = []int{0, 1, 8, 9, 24, 4096, 1 << 20}

// pes returns how many PEs a test runs with. Where messages have little room, four
// PEs take long on two processors.
func pes(o Options) []int {
	if o.Slots != 0 {
		return []int{1, 2, 3}
	}
	return []int{1, 2, 3, 4}
}

// Each PE sends messages of all sizes to the next one, with receives called before
// and after.
func TestMessagesOfAllSizesArriveWhole(t *testing.T) {
	for name, o := range map[string]Options{
		"normal":     {},
		"no buffers": {Slots: 1, Buffer: 64, Piece: 64 << 10},
		"few slots":  {Slots: 2, Piece: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, pes(o), o, func(t *testing.T, c *Comm) {
				for _, symmetric := range []bool{false, true} {
					for _, early := range []bool{false, true} {
						around(t, c, symmetric, early)
					}
				}
			})
		})
	}
}

func around(t require.TestingT, c *Comm, inHeap, early bool) {
	ctx := context.Background()
	n := c.NumPEs()
	left, right := (c.PE()+n-1)%n, (c.PE()+1)%n
	into := make([]byte, 1<<20)
	if inHeap {
		var err error
		into, err = symmetric(c, len(into))
		require.NoError(t, err)
	}
	for i, size := range sizes {
		clear(into)
		var recv, send *Request
		if early {
			recv = ARecv(c, into, left, i)
			require.NoError(t, c.w.Team().Barrier(ctx))
			send = ASend(c, filled(size, size+c.PE()), right, i)
		} else {
			send = ASend(c, filled(size, size+c.PE()), right, i)
			recv = ARecv(c, into, left, i)
		}
		_, err := send.Wait(ctx)
		require.NoError(t, err)
		last, err := recv.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, Last{left, i, size}, last)
		require.True(t, bytes.Equal(filled(size, size+left), into[:size]), "contents of %d bytes", size)
	}
}
