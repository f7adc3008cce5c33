package ntbfault_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

const us, ms = time.Microsecond, time.Millisecond

func TestSessions(t *testing.T) {
	for _, o := range []ntbfault.Options{
		{},
		{StoreDelayMax: 20 * us, DoorbellDelayMax: 20 * us, RepeatDoorbell: 0.2},
	} {
		if o.StoreDelayMax > 0 && !testing.Short() {
			o.DropDoorbell = 0.1
		}
		ntbtest.RunAttachments(t, func(*testing.T) (a, b ntb.Attachment) {
			return ntbattach.Ends(func() (a, b ntb.Device) {
				a, b = ntbmem.Pair(4 << 10)
				return ntbfault.Pair(a, b, o)
			})
		})
	}
}

// A device with the faults of a real bridge keeps every promise of a device.
func TestConformance(t *testing.T) {
	tests := []struct {
		name  string
		seeds uint64
		o     ntbfault.Options
	}{
		{"no faults", 1, ntbfault.Options{}},
		{"stores late by up to 1 us", 1, ntbfault.Options{StoreDelayMax: us}},
		{"stores late by up to 50 us", 1, ntbfault.Options{StoreDelayMax: 50 * us}},
		{"stores late by 1 to 2 ms", 1, ntbfault.Options{StoreDelayMin: ms, StoreDelayMax: 2 * ms}},
		{"stores late, little room", 1, ntbfault.Options{StoreDelayMax: 20 * us, QueueBytes: 256}},
		{"doorbells late", 1, ntbfault.Options{DoorbellDelayMax: ms}},
		{"doorbells lost", 1, ntbfault.Options{DropDoorbell: 0.4}},
		{"doorbells repeated", 1, ntbfault.Options{RepeatDoorbell: 0.5}},
		{"all", 3, ntbfault.Options{StoreDelayMax: 100 * us, DoorbellDelayMax: 200 * us, DropDoorbell: 0.2, RepeatDoorbell: 0.2}},
	}
	for _, tt := range tests {
		for seed := range tt.seeds {
			if seed > 0 && os.Getenv("NTBNET_LONG") == "" {
				break
			}
			t.Run(fmt.Sprintf("%s, seed %d", tt.name, seed), func(t *testing.T) {
				tt.o.Seed = seed
				ntbtest.Run(t, func(*testing.T) (a, b ntb.Device) {
					a, b = ntbmem.Pair(16 << 10)
					return ntbfault.Pair(a, b, tt.o)
				})
			})
		}
	}
}
