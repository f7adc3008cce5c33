package mplite

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

var sizes = []int{0, 1, 8, 9, 24, 4096, 1 << 20}

// Each PE sends messages of all sizes around, with receives before and after.
func TestMessagesOfAllSizesArriveWhole(t *testing.T) {
	for name, o := range map[string]Options{
		"normal":     {},
		"no buffers": {Slots: 1, Buffer: 64, Piece: 64 << 10},
		"few slots":  {Slots: 2, Piece: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, []int{1, 2, 3, 4}, o, func(t *testing.T, c *Comm) {
				for _, symmetric := range []bool{false, true} {
					for _, early := range []bool{false, true} {
						around(t, c, symmetric, early)
					}
				}
			})
		})
	}
}

func around(t require.TestingT, c *Comm, symmetric, early bool) {
	ctx := context.Background()
	n := c.NumPEs()
	left, right := (c.PE()+n-1)%n, (c.PE()+1)%n
	into := memory(t, c, 1<<20, symmetric)
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
		if n == 1 || c.opts.Buffer < size { // nobody has said that Send does not wait
			require.NoError(t, err)
		}
		last, err := recv.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, Last{left, i, size}, last)
		require.Equal(t, filled(size, size+left), into[:size])
		require.NoError(t, err)
	}
}
