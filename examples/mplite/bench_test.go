package mplite

import (
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
)

// BenchmarkPingPong measures the time of a message and its answer, with receives
// into symmetric memory and into other memory.
func BenchmarkPingPong(b *testing.B) {
	for _, mode := range []string{"mapped", "strict"} {
		for _, size := range []int{8, 64 << 10} {
			for _, memory := range []string{"symmetric", "other"} {
				b.Run(fmt.Sprintf("%s/%d/%s", mode, size, memory), func(b *testing.B) {
					run(b, 2, mode, "shm:"+fabrictest.Name(b), Options{}, func(c *Comm) {
						pingPong(b, c, size, memory == "symmetric")
					})
				})
			}
		}
	}
}

// pingPong posts each receive before it sends the message that the other PE
// answers.
func pingPong(b *testing.B, c *Comm, size int, inHeap bool) {
	other, buf, into := 1-c.PE(), make([]byte, size), make([]byte, size)
	if inHeap {
		var err error
		if into, err = symmetric(c, size); err != nil {
			b.Error(err)
			return
		}
	}
	check := func(err error) {
		if err != nil {
			b.Error(err)
		}
	}
	if err := c.w.Team().Barrier(background); err != nil {
		b.Error(err)
		return
	}
	if c.PE() == 0 {
		b.SetBytes(2 * int64(size))
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			r := ARecv(c, into, other, 1)
			check(Send(background, c, buf, other, 1))
			check(ignoreLast(r.Wait(background)))
		}
		b.StopTimer()
		return
	}
	r := ARecv(c, into, other, 1)
	for i := range b.N {
		check(ignoreLast(r.Wait(background)))
		if i < b.N-1 {
			r = ARecv(c, into, other, 1)
		}
		check(Send(background, c, buf, other, 1))
	}
}
