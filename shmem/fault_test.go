package shmem

import (
	"fmt"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

func init() {
	bodies["atomics of one type"] = func(t require.TestingT, w *World) { amos[uint32](t, w) }
}

// Requests pass over bridges that misbehave. What arrives late must still be in
// order, and a wait must not rely on a doorbell.
func TestRequestsOverFaultyBridges(t *testing.T) {
	seeds := []int{1, 2, 3}
	if testing.Short() {
		seeds = seeds[:1]
	}
	for _, name := range []string{"basics", "waits", "heat", "sort", "random updates", "transpose", "atomics of one type"} {
		seeds := seeds
		if name == "atomics of one type" {
			seeds = seeds[:1] // each fetch waits for a timer
		}
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("%s/seed %d", name, seed), func(t *testing.T) {
				fabric := fmt.Sprintf("mem:fault%d", seed)
				faulty, err := sdp.OpenWith(fabric, sdp.Devices{Wrap: func(a, b ntb.Device) (ntb.Device, ntb.Device) {
					x, y := ntbfault.Pair(a, b, ntbfault.Options{
						Seed: uint64(seed), StoreDelayMax: 50 * time.Microsecond, DoorbellDelayMax: 100 * time.Microsecond,
						RepeatDoorbell: 0.3, DropDoorbell: 0.002,
					})
					return x, y
				}})
				require.NoError(t, err)
				defer faulty.Close() // the PEs share it
				run(t, 2, fabric, []Option{Strict()}, func(w *World) { bodies[name](t, w) })
			})
		}
	}
}
