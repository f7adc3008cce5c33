//go:build linux && (amd64 || arm64)

package ntbshm

import "testing"

// BenchmarkDoorbellRing rings a doorbell that has no waiter.
func BenchmarkDoorbellRing(b *testing.B) {
	near, _ := pair(b, small)
	b.ReportAllocs()
	for b.Loop() {
		near.RingDoorbell(0)
	}
}

// BenchmarkDoorbellPingPong measures a ring, the wake-up of another process, and
// the same back. Each side sleeps before it is rung, unless the other one was
// faster.
func BenchmarkDoorbellPingPong(b *testing.B) {
	d, _ := startPeer(b)
	b.ReportAllocs()
	v := uint64(0)
	for b.Loop() {
		v += 2
		if err := ask(d, v); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDoorbellPingPongWithin measures the same between two goroutines.
func BenchmarkDoorbellPingPongWithin(b *testing.B) {
	near, far := pair(b, small)
	go func() {
		for far.WaitDoorbell(0) == nil {
			far.RingDoorbell(0)
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		near.RingDoorbell(0)
		if err := near.WaitDoorbell(0); err != nil {
			b.Fatal(err)
		}
	}
}
