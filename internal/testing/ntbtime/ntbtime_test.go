package ntbtime

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/internal/virtual"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

var gen3x8 = Link{Rate: 7.88e9, Header: 24, Payload: 256, OneWay: 500 * time.Nanosecond, Combining: true, Queue: 4096, Interrupt: 5 * time.Microsecond}

func devices(t *testing.T, l Link) (*Device, *Device) {
	a, b := ntbmem.Pair(1 << 20)
	x, y := Pair(a, b, l)
	t.Cleanup(func() {
		require.NoError(t, x.Close())
		require.NoError(t, y.Close())
	})
	return x, y
}

func TestConformance(t *testing.T) {
	for name, combining := range map[string]bool{"combining": true, "uncached": false} {
		l := gen3x8
		l.Combining = combining
		make := func(t *testing.T) (ntb.Device, ntb.Device) {
			x, y := devices(t, l)
			return x, y
		}
		t.Run(name, func(t *testing.T) { ntbtest.Run(t, make) })
		t.Run(name+", in a bubble", func(t *testing.T) {
			virtual.Poll = func() { time.Sleep(time.Microsecond) }
			defer func() { virtual.Poll = nil }()
			ntbtest.RunIn(t, synctest.Test, make)
		})
	}
}

// took returns how long it takes until the last of what f stores has arrived at y.
func took(y *Device, at int, f func()) time.Duration {
	begin := time.Now()
	f()
	for ntb.Load64(y.Inbound(), at) != 1 {
		time.Sleep(time.Nanosecond)
	}
	return time.Since(begin)
}

// Stores, doorbells and reads take the time that can be computed from the Link.
func TestClosedForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := gen3x8
		l.Rate = 8e9 // 8 bytes a nanosecond
		near := func(want float64, got time.Duration) {
			t.Helper()
			require.InDelta(t, want, float64(got), 3) // ns
		}
		x, y := devices(t, l)
		out := x.Outbound()
		near(500+32/8, took(y, 0, func() { out.Publish64(0, 1) }))
		near(500+(88*1024+32)/8, took(y, 8, func() {
			out.Write(1<<16, make([]byte, 1<<16))
			out.Publish64(8, 1)
		}))
		require.EqualValues(t, 1024, x.Stats().Lines)
		require.Equal(t, 8e9*64/88, l.Posted())

		x.Reset()
		near(500+(9*32)/8, took(y, 16, func() { // a line without its last byte
			out.Write(1<<16, make([]byte, 63))
			out.Publish64(16, 1)
		}))
		require.Equal(t, Stats{Packets: 9, Payload: 71, Wire: 71 + 9*24, Parts: 1, Words: 1}, x.Stats())

		rung := make(chan time.Time)
		go func() {
			if y.WaitDoorbell(3) == nil {
				rung <- time.Now()
			}
		}()
		begin := time.Now()
		x.RingDoorbell(3)
		near(5000+500+28/8, (<-rung).Sub(begin))

		begin = time.Now()
		x.Order()
		near(500+24/8+500+32/8, time.Since(begin))
		back := y.Outbound()
		begin = time.Now()
		back.Write(0, make([]byte, 4096)) // the answer comes behind it
		x.Order()
		near(500+64*88/8+32/8, time.Since(begin))

		l.Combining = false
		x, y = devices(t, l)
		out = x.Outbound()
		near(500+(32*128+32)/8, took(y, 8, func() {
			out.Write(1<<16, make([]byte, 1<<10))
			out.Publish64(8, 1)
		}))
		require.Equal(t, 2e9, l.Posted())
	})
}

// A processor waits when as much as fits waits for the wire.
func TestStoresWaitForTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := gen3x8
		l.Rate = 8e9
		x, _ := devices(t, l)
		out := x.Outbound()
		begin := time.Now()
		out.Write(0, make([]byte, 1<<16))
		require.InDelta(t, float64(88*1024-4096)/8, float64(time.Since(begin)), 3)
		require.InDelta(t, float64(time.Since(begin)), float64(x.Stats().Waited), 3)
		x.Order()
	})
}
