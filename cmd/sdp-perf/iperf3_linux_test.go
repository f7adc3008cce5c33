package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// iperf3 returns the path of iperf3.
func iperf3(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("iperf3")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("iperf3 is missing")
		}
		t.Skip("WARNING: iperf3 is missing")
	}
	return path
}

// startIperf3 starts a server of iperf3, and returns when it listens, with its port.
func startIperf3(t *testing.T) string {
	t.Helper()
	path := iperf3(t)
	for range 20 { // somebody may take the port that was free
		ln, err := net.Listen("tcp", ":0")
		require.NoError(t, err)
		port := fmt.Sprint(ln.Addr().(*net.TCPAddr).Port)
		require.NoError(t, ln.Close())
		cmd := exec.Command(path, "-s", "-p", port, "--forceflush")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "Server listening") {
				return port
			}
		}
	}
	t.Fatal("iperf3 does not listen")
	return ""
}

// iperf3Run is what a program that reads iperf3's -J looks at.
type iperf3Run struct {
	Start struct {
		Connected []struct {
			Socket     int
			LocalHost  string `json:"local_host"`
			LocalPort  int    `json:"local_port"`
			RemoteHost string `json:"remote_host"`
			RemotePort int    `json:"remote_port"`
		}
		Version      string
		SystemInfo   string `json:"system_info"`
		Timestamp    struct{ Timesecs int64 }
		ConnectingTo struct {
			Host string
			Port int
		} `json:"connecting_to"`
		TestStart struct {
			Protocol   string
			NumStreams int `json:"num_streams"`
			Blksize    int
			Bytes      uint64
			Reverse    int
		} `json:"test_start"`
	}
	Intervals []struct {
		Streams []iperf3Amount
		Sum     iperf3Amount
	}
	End struct {
		Streams []struct{ Sender, Receiver iperf3Amount }
		Sent    iperf3Amount `json:"sum_sent"`
		Got     iperf3Amount `json:"sum_received"`
		CPU     struct {
			Host   float64 `json:"host_total"`
			Remote float64 `json:"remote_total"`
		} `json:"cpu_utilization_percent"`
	}
	Error string
}

type iperf3Amount struct {
	Start, End, Seconds float64
	Bytes               uint64
	Bits                float64 `json:"bits_per_second"`
	Sender              bool
}

// read reads the output of iperf3, or of sdp-perf, and checks what holds for both.
func (r *iperf3Run) read(t *testing.T, output []byte, streams int, bytes uint64, reverse bool) {
	t.Helper()
	require.NoError(t, json.Unmarshal(output, r), "%s", output)
	require.Empty(t, r.Error)
	require.Len(t, r.Start.Connected, streams)
	for _, c := range r.Start.Connected {
		assert.Positive(t, c.Socket)
		assert.Equal(t, "127.0.0.1", c.LocalHost)
		assert.Positive(t, c.LocalPort)
		assert.Equal(t, r.Start.ConnectingTo.Port, c.RemotePort)
	}
	assert.Positive(t, r.Start.Timestamp.Timesecs)
	assert.NotEmpty(t, r.Start.Version)
	assert.NotEmpty(t, r.Start.SystemInfo)
	assert.Equal(t, "TCP", r.Start.TestStart.Protocol)
	assert.Equal(t, streams, r.Start.TestStart.NumStreams)
	assert.Equal(t, 65536, r.Start.TestStart.Blksize)
	assert.Equal(t, bytes, r.Start.TestStart.Bytes)
	assert.Equal(t, reverse, r.Start.TestStart.Reverse == 1)
	require.NotEmpty(t, r.Intervals)
	var sum uint64
	for _, in := range r.Intervals {
		require.Len(t, in.Streams, streams)
		assert.Equal(t, !reverse, in.Sum.Sender)
		assert.InDelta(t, in.Sum.End-in.Sum.Start, in.Sum.Seconds, 1e-3)
		sum += in.Sum.Bytes
	}
	require.Len(t, r.End.Streams, streams)
	var sent, got uint64
	for _, s := range r.End.Streams {
		sent, got = sent+s.Sender.Bytes, got+s.Receiver.Bytes
	}
	assert.Equal(t, r.End.Sent.Bytes, sent)
	assert.Equal(t, r.End.Got.Bytes, got)
	assert.GreaterOrEqual(t, sent, bytes)
	assert.LessOrEqual(t, got, sent)
	for _, a := range []iperf3Amount{r.End.Sent, r.End.Got} {
		assert.Positive(t, a.Bits)
		assert.InEpsilon(t, float64(a.Bytes)*8/a.Seconds, a.Bits, 0.01)
	}
	assert.Positive(t, sum)
	assert.GreaterOrEqual(t, r.End.CPU.Host+r.End.CPU.Remote, 0.)
}

// One program reads the JSON of both.
func TestJSONIsReadAsThatOfIperf3(t *testing.T) {
	theirs := startIperf3(t)
	srv, ours := startServer(t, "--transport", "tcp")
	const bytes = 64 << 20
	for _, reverse := range []bool{false, true} {
		args := func(port string) []string {
			a := []string{"-c", "127.0.0.1", "-p", port, "-n", fmt.Sprint(bytes), "-P", "2", "-l", "64K", "-J", "-i", "0.1"}
			if reverse {
				a = append(a, "-R")
			}
			return a
		}
		out, err := exec.Command(iperf3(t), args(theirs)...).Output()
		require.NoError(t, err, "%s", out)
		var a, b iperf3Run
		a.read(t, out, 2, bytes, reverse)
		c := newProgram(t, nil, append(args(ours), "--transport", "tcp")...)
		require.Zero(t, c.run(t), c.stderr.String())
		b.read(t, c.stdout.Bytes(), 2, bytes, reverse)
		assert.EqualValues(t, bytes, b.End.Sent.Bytes)
		assert.EqualValues(t, bytes, b.End.Got.Bytes)
		t.Logf("reverse %v: iperf3 %.2f Gbit/s, sdp-perf by TCP %.2f Gbit/s", reverse, a.End.Got.Bits/1e9, b.End.Got.Bits/1e9)
	}
	srv.interrupt(t)
}

func TestIperf3AtTheOtherEndIsRecognized(t *testing.T) {
	port := startIperf3(t)
	for _, args := range [][]string{{"-c", "localhost"}, {"-c", "127.0.0.1", "--transport", "tcp"}, {"-s"}, {"-s", "--transport", "tcp"}} {
		p := newProgram(t, nil, append(args, "-p", port)...)
		assert.Equal(t, 2, p.run(t), args)
		assertOneLine(t, p.stderr.String(), "iperf3")
	}
	srv, ours := startServer(t)
	var out bytes.Buffer
	c := exec.Command(iperf3(t), "-c", "127.0.0.1", "-p", ours, "-t", "1")
	c.Stdout, c.Stderr = &out, &out
	require.Error(t, c.Run(), out.String())
	require.NoError(t, srv.Process.Signal(os.Interrupt))
	assert.Zero(t, srv.wait(t))
	assertOneLine(t, srv.stderr.String(), "a client was refused: iperf3 is at the other end")
}

// Each flag that iperf3's help has is one of this tool's, or is refused with a reason.
func TestEachFlagOfIperf3IsKnown(t *testing.T) {
	help, _ := exec.Command(iperf3(t), "--help").CombinedOutput()
	flags := regexp.MustCompile(`(?m)^\s+(?:-(\w), )?--([\w-]+)`).FindAllStringSubmatch(string(help), -1)
	require.Greater(t, len(flags), 30)
	for _, m := range flags {
		for _, flag := range []string{m[1], m[2]} {
			if flag == "" {
				continue
			}
			arg := "-" + flag
			if len(flag) > 1 {
				arg = "--" + flag
			}
			var o options
			_, err := o.parse([]string{"-c", "localhost", arg, "1"}, io.Discard)
			if err != nil {
				require.NotContains(t, err.Error(), "unknown flag", flag)
				require.NotContains(t, err.Error(), "unknown shorthand", flag)
			}
		}
	}
}
