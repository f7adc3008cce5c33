//go:build linux

package integration

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// servedAcrossRestarts makes 200 requests in turn, while a proxy is stopped and started again four times. at[0] leads to
// its port of SDP, of which a dial waits for a second at most.
func servedAcrossRestarts(t *testing.T, at []string, stop, start func()) {
	t.Helper()
	const requests, restarts = 200, 4
	type outage struct{ begin, end time.Time } // end is zero until the proxy listens again
	var last atomic.Pointer[outage]
	var done, answered atomic.Int32 // restarts, requests
	served := make(chan error, 1)
	late := 0 // requests while the machine was too slow for a restart
	go func() {
		for i := 0; i < requests || done.Load() < restarts; i++ {
			begin := time.Now()
			err := request(at[i%len(at)])
			if err == nil {
				answered.Add(1)
				continue
			}
			o := last.Load()
			if o != nil && o.end.IsZero() {
				o = &outage{o.begin, time.Now()}
			}
			// Times of files are those of a coarse clock.
			if i%len(at) != 0 || o == nil || o.end.Before(begin) || o.end.Sub(o.begin) < hostdir.HandoverTime*9/10 {
				served <- fmt.Errorf("request %d: %w", i, err)
				return
			}
			late++
		}
		served <- nil
	}()
	for range restarts {
		now := time.Now()
		last.Store(&outage{begin: now})
		stop()
		start()
		last.Store(&outage{now, time.Now()})
		before := answered.Load() // a dial that waits tries again now and then
		until(t, "a request is answered", func() bool { return len(served) > 0 || int(answered.Load()-before) > len(at) })
		done.Add(1)
	}
	require.NoError(t, <-served)
	t.Logf("%d requests came later than a second after a stop", late)
}

// While a proxy is stopped and started again, dials of its sdp:// port wait, and none is refused. A port whose proxy
// was killed refuses at once.
func TestNoDialOfSDPIsRefusedAcrossRestarts(t *testing.T) {
	fabric, target := fabric(t), echo(t)
	p := startProxy(t, fabric, nil, "sdp://localhost:0="+target)
	at := p.listening[0]
	front := startProxy(t, fabric, nil, "unix://"+shortDir(t)+"/s="+at)
	servedAcrossRestarts(t, front.listening, func() {
		p.signal(syscall.SIGTERM)
		require.Zero(t, p.status())
	}, func() { p = startProxy(t, fabric, nil, at+"="+target) })

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

// A map of both networks, whose socket of TCP was passed, serves both across restarts.
func TestNoClientOfBothNetworksIsRefusedAcrossRestarts(t *testing.T) {
	s, fabric, target := listenForOthers(t), fabric(t), echo(t)
	maps := []string{strings.Replace(s.tcp, "tcp://", "tcp+sdp://", 1) + "=" + target, s.unix + "=" + target}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.tcp, "tcp://"))
	require.NoError(t, err)
	front := startProxy(t, fabric, nil, "unix://"+shortDir(t)+"/f=sdp://localhost:"+port)
	p := s.start(t, fabric, maps...)
	p.waitFor(readyLine, len(maps))
	servedAcrossRestarts(t, []string{front.listening[0], s.tcp, s.unix}, func() {
		p.signal(syscall.SIGTERM)
		require.Zero(t, p.status())
	}, func() {
		p = s.start(t, fabric, maps...)
		p.waitFor(readyLine, len(maps))
	})
}
