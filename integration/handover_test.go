//go:build linux

package integration

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// While a proxy is stopped and started again, dials of its sdp:// port wait, and none is refused. A port whose proxy
// was killed refuses at once.
func TestNoDialOfSDPIsRefusedAcrossRestarts(t *testing.T) {
	const requests, restarts = 200, 4
	fabric, target := fabric(t), echo(t)
	p := startProxy(t, fabric, nil, "sdp://localhost:0="+target)
	at := p.listening[0]
	front := startProxy(t, fabric, nil, "unix://"+shortDir(t)+"/s="+at)
	var stopped atomic.Pointer[time.Time] // when the proxy was stopped; nil while it listens
	var done atomic.Int32                 // restarts
	served := make(chan error, 1)
	late := 0 // requests while the machine was too slow for a restart
	go func() {
		for i := 0; i < requests || done.Load() < restarts; i++ {
			begin := stopped.Load()
			err := request(front.listening[0])
			if err == nil {
				continue
			}
			if begin == nil {
				begin = stopped.Load()
			}
			if begin == nil || time.Since(*begin) < hostdir.HandoverTime*9/10 { // files' times are of a coarse clock
				served <- fmt.Errorf("request %d: %w", i, err)
				return
			}
			late++
		}
		served <- nil
	}()
	for range restarts {
		now := time.Now()
		stopped.Store(&now)
		p.signal(syscall.SIGTERM)
		require.Zero(t, p.status())
		p = startProxy(t, fabric, nil, at+"="+target)
		stopped.Store(nil)
		done.Add(1)
	}
	require.NoError(t, <-served, "%s", front.out.String())
	t.Logf("%d requests came later than a second after a stop", late)

	p.signal(syscall.SIGKILL)
	p.status()
	t.Setenv("SDP_FABRIC", fabric[len("SDP_FABRIC="):])
	soonest := time.Hour
	for range 20 {
		begin := time.Now()
		_, err := sdp.Dial("sdp", at[len("sdp://"):])
		require.True(t, errors.Is(err, syscall.ECONNREFUSED), "%v", err)
		soonest = min(soonest, time.Since(begin))
	}
	require.Less(t, soonest, hostdir.HandoverTime/2, "each dial has waited")
}
