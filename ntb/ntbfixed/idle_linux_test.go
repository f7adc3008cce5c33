//go:build amd64 || arm64

package ntbfixed

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkPolling reports what a link costs whose two sides, both in this process, take no
// interrupts, and on which nothing happens.
func BenchmarkPolling(b *testing.B) {
	const each = 64 << 10
	fd, err := memfd.Create("ntbnet-fixed", 2*each)
	require.NoError(b, err)
	defer unix.Close(fd)
	var ends [2]ntb.Attachment
	for i := range ends {
		ends[i], err = Attach(Config{
			Own: Memory{fd, int64(i * each), each}, Peer: Memory{fd, int64((1 - i) * each), each},
			Interrupt: func(uint32, int) { panic("nobody takes interrupts") }, Stop: func() {},
		})
		require.NoError(b, err)
		defer ends[i].Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	opened := make(chan ntb.Device)
	go func() { d, _ := ends[1].Open(ctx); opened <- d }()
	x, err := ends[0].Open(ctx)
	require.NoError(b, err)
	y := <-opened
	x.RingDoorbell(0)
	require.NoError(b, y.WaitDoorbell(0))
	time.Sleep(2 * time.Second)
	begin, used := time.Now(), cpu()
	for b.Loop() {
		time.Sleep(3 * time.Second)
	}
	b.ReportMetric(100*float64(cpu()-used)/2/float64(time.Since(begin)), "%/side")
	require.NoError(b, x.Close())
	require.NoError(b, y.Close())
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
