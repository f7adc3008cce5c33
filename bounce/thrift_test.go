package bounce

import (
	"runtime"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/stretchr/testify/require"
)

// parkedRead has b read so that it parks, after a spin if it spins.
func parkedRead(t *testing.T, a, b *Pair) {
	t.Helper()
	parks := b.Stats().ReadParks
	done := make(chan error, 1)
	go func() { _, err := b.Read(make([]byte, 8)); done <- err }()
	for b.Stats().ReadParks == parks {
		time.Sleep(100 * time.Microsecond)
	}
	_, err := a.Write(make([]byte, 8))
	require.NoError(t, err)
	require.NoError(t, <-done)
}

// slowSource is never ready, and takes so long to say so each time.
type slowSource struct{ time.Duration }

func (s slowSource) Ready() bool {
	for start := time.Now(); time.Since(start) < s.Duration; {
	}
	return false
}
func (slowSource) Stopped() bool { return false }
func (slowSource) Yielded()      {}

// What spins of others in the fabric cost keeps those of a connection from spinning.
func TestReadsParkAtOnceWhereSpinningDoesNotPay(t *testing.T) {
	if runtime.NumCPU() == 1 {
		t.Skip("nobody spins on one processor")
	}
	thrift := wait.NewThrift()
	pa, pb := memPools(t, Options{Spin: DefaultSpin, Thrift: thrift})
	a, b := connect(t, pa, pb)
	within(t, func() {
		for b.Stats().ReadSpinsSpared == 0 {
			for !spared(thrift) {
			}
			parkedRead(t, a, b)
		}
	})
}

// spared has one spin more take time from the account, and reports whether it is
// overdrawn.
func spared(thrift *wait.Thrift) bool {
	s := wait.NewSpinner(time.Nanosecond, thrift)
	each := 20 * time.Microsecond // some tens of them are all that the account has
	if thrift.Taken() == 0 {
		each = time.Millisecond // so the system seems to have taken the processor
	}
	s.Spin(slowSource{each})
	return s.Counts().Spared > 0
}
