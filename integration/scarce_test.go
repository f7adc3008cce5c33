//go:build linux

package integration

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// playTaken makes round trips until the system has taken the processor from one of its
// waits.
func playTaken(p *self) error {
	f, err := sdp.Open("")
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := f.Dial("sdp", p.args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	p.printf("going")
	for buf := make([]byte, 8); f.Stats().ProcessorTaken == 0; {
		if _, err := c.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
	}
	p.printf("taken")
	p.stay()
	return nil
}

// A process that is stopped again and again, as under a quota, notices that at its waits.
func TestStatsCountProcessorsTaken(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("nobody spins on one processor")
	}
	newFabric(t)
	// The waits spin nearly all the time, so that they are what is stopped.
	t.Setenv("SDP_FABRIC", os.Getenv("SDP_FABRIC")+"?spin=1ms")
	ln, err := sdp.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	defer ln.Close()
	client := startPeer(t, "taken", []string{ln.Addr().String()})
	go func() {
		<-client.exited
		ln.Close() // or Accept would wait for a client that could not dial
	}()
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()
	served := make(chan error, 1)
	go func() {
		for buf := make([]byte, 8); ; {
			if _, err := io.ReadFull(c, buf); err != nil {
				served <- err
				return
			}
			time.Sleep(200 * time.Microsecond)
			if _, err := c.Write(buf); err != nil {
				served <- err
				return
			}
		}
	}()
	require.Equal(t, "going", client.readLine())
	taken := make(chan string, 1)
	go func() { taken <- <-client.lines }()
	for end := time.Now().Add(testTimeout); ; {
		select {
		case line := <-taken:
			require.Equal(t, "taken", line)
			client.end()
			require.Error(t, <-served)
			return
		default:
		}
		require.True(t, time.Now().Before(end), "it does not notice")
		require.NoError(t, client.cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(3 * time.Millisecond)
		require.NoError(t, client.cmd.Process.Signal(syscall.SIGCONT))
		time.Sleep(time.Millisecond)
	}
}

// TestScarceProcessors compares round trips with those of TCP, where the two processes
// have half a processor together, and where other processes need the processors. It does
// ten rounds of 5 s, in turns.
func TestScarceProcessors(t *testing.T) {
	if os.Getenv("NTBNET_ALONE") == "" {
		t.Skip("takes 4 minutes, and the processors; NTBNET_ALONE=1 runs it")
	}
	t.Run("quota", func(t *testing.T) {
		group := halfProcessor(t)
		roundTripsBesideTCP(t, "sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"))
	})
	t.Run("busy", func(t *testing.T) {
		for range 4 {
			start(t, tool(t, "sh"), []string{"-c", "while :; do :; done"})
		}
		roundTripsBesideTCP(t)
	})
}

// halfProcessor makes a control group with a quota.
func halfProcessor(t *testing.T) string {
	t.Helper()
	name := fabrictest.Name(t)
	for _, way := range []struct{ root, file, quota string }{
		{"/sys/fs/cgroup", "cpu.max", "50000 100000"},
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"},
	} {
		group := filepath.Join(way.root, name)
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		f, err := os.OpenFile(filepath.Join(group, way.file), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(way.quota)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			os.Remove(group)
			continue
		}
		t.Cleanup(func() {
			until(t, "the control group is empty", func() bool { return os.Remove(group) == nil })
		})
		return group
	}
	t.Skip("this process cannot make a control group with a quota")
	return ""
}

// roundTripsBesideTCP runs sdp-perf through the command in before, and compares.
func roundTripsBesideTCP(t *testing.T, before ...string) {
	t.Helper()
	args := append(slices.Clone(before), filepath.Join(programs, "sdp-perf"), "-J", "-t", "200")
	p := start(t, tool(t, args[0]), args[1:], withEnv(fabric(t)))
	select {
	case <-p.exited:
	case <-time.After(20 * time.Minute):
		t.Fatal("it does not end")
	}
	var report struct {
		Rounds int
		Rows   []struct {
			Name       string
			Transports map[string]struct {
				Median float64
				Faster map[string]struct{ Median, Min, Max float64 } `json:"times_as_fast_as"`
			}
		}
	}
	out := p.out.String()
	require.NoError(t, json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &report), out)
	require.Equal(t, 5, report.Rounds)
	row := report.Rows[0]
	require.Equal(t, "64 B round trip", row.Name)
	faster := row.Transports["sdp"].Faster["tcp"]
	t.Logf("round trip: sdp %.1f µs, tcp %.1f µs, %+v", row.Transports["sdp"].Median, row.Transports["tcp"].Median, faster)
	require.GreaterOrEqual(t, faster.Median, 1.0)
}
