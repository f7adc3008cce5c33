package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The unit of -f is that of each rate.
func TestFormatSetsTheUnitOfRates(t *testing.T) {
	for unit, want := range map[string]string{"k": " Kbits/sec", "G": " GBytes/sec"} {
		p := newProgram(t, nil, "bw", "-n", "1M", "-f", unit)
		require.Zero(t, p.run(t), p.stderr.String())
		for line := range strings.Lines(p.stdout.String()) {
			if strings.Contains(line, "/sec") {
				assert.Contains(t, line, want)
			}
		}
		assert.Contains(t, p.stdout.String(), want)
	}
}

// --timestamps begins each line with the time, and -V prints the machine.
func TestTimestampsAndVerbose(t *testing.T) {
	p := newProgram(t, nil, "bw", "-n", "1M", "-V", "--timestamps=at %Y-%m-%dT%H:%M:%S%z 100%| ")
	require.Zero(t, p.run(t), p.stderr.String())
	text := p.stdout.String()
	for line := range strings.Lines(text) {
		stamp, _, ok := strings.Cut(strings.TrimPrefix(line, "at "), " 100%| ")
		require.True(t, ok, line)
		when, err := time.Parse("2006-01-02T15:04:05-0700", stamp)
		require.NoError(t, err, line)
		assert.WithinDuration(t, time.Now(), when, time.Hour)
	}
	assert.Contains(t, text, " processors\n")
	p = newProgram(t, nil, "bw", "-n", "1M", "--timestamps", "-J")
	require.Equal(t, exitBadInput, p.run(t))
	p = newProgram(t, nil, "bw", "-n", "1M", "--timestamps")
	require.Zero(t, p.run(t), p.stderr.String())
	line, _, _ := strings.Cut(p.stdout.String(), "\n")
	_, err := time.ParseInLocation("Mon Jan _2 15:04:05 2006", line[:len("Sat Nov 28 18:30:00 2026")], time.Local)
	assert.NoError(t, err, line)
}

// A server and a client of different families do not meet.
func TestFamilies(t *testing.T) {
	srv, port := startServer(t, "--transport", "tcp", "-4")
	for family, want := range map[string]int{"-4": 0, "-6": exitBadInput} {
		c := newProgram(t, nil, "-c", "localhost", "-p", port, "--transport", "tcp", "-n", "1M", family)
		assert.Equal(t, want, c.run(t), "%s: %s", family, c.stderr.String())
	}
	srv.interrupt(t)
}

// --cport is the port of the first data connection, the next one has the next port.
func TestPortsOfTheClient(t *testing.T) {
	srv, port := startServer(t, "--transport", "tcp")
	var run iperf3Run
	eventually(t, "two ports in a row are free", func() bool {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		first := ln.Addr().(*net.TCPAddr).Port
		require.NoError(t, ln.Close())
		c := newProgram(t, nil, "-c", "127.0.0.1", "-p", port, "--transport", "tcp", "-n", "1M", "-P", "2", "-J", "--cport", strconv.Itoa(first))
		if c.run(t) != 0 {
			return false
		}
		run = iperf3Run{}
		require.NoError(t, json.Unmarshal(c.stdout.Bytes(), &run))
		require.Len(t, run.Start.Connected, 2)
		for i, s := range run.Start.Connected {
			assert.Equal(t, first+i, s.LocalPort)
		}
		return true
	})
	srv.interrupt(t)
	for _, args := range []string{"-c localhost --cport 9", "-c localhost --transport tcp crr --cport 9", "-c localhost --transport tcp --cport 65535"} {
		assert.Equal(t, exitBadInput, newProgram(t, nil, strings.Fields(args)...).run(t), args)
	}
}

// -D leaves a server in the background, which -1 ends after a client, or says why there is none.
func TestDaemon(t *testing.T) {
	var daemon *program
	var port string
	eventually(t, "a port is free", func() bool {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, port, _ = net.SplitHostPort(ln.Addr().String())
		require.NoError(t, ln.Close())
		daemon = newProgram(t, nil, "-s", "-D", "-1", "-p", port, "-B", "127.0.0.1", "--transport", "tcp")
		return daemon.run(t) == 0
	})
	assert.Regexp(t, `^Server runs as process \d+\n$`, daemon.stdout.String())
	eventually(t, "it serves", func() bool {
		return newProgram(t, nil, "-c", "127.0.0.1", "-p", port, "--transport", "tcp", "-n", "1M").run(t) == 0
	})
	eventually(t, "it has ended", func() bool {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	assert.Equal(t, exitBadInput, newProgram(t, nil, "bw", "-D").run(t))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	assert.Equal(t, exitBadInput, newProgram(t, nil, "-s", "-D", "-p", port, "-B", "127.0.0.1", "--transport", "tcp").run(t))
}

// --get-server-output brings what the server prints of the run, and -d what is said about it.
func TestServerOutputAndDebug(t *testing.T) {
	srv, port := startServer(t)
	c := newProgram(t, nil, "-c", "localhost", "-p", port, "-n", "1M", "--get-server-output", "-d")
	require.Zero(t, c.run(t), c.stderr.String())
	own, theirs, ok := strings.Cut(c.stdout.String(), "\nServer output:\n")
	require.True(t, ok, own)
	assert.Contains(t, theirs, "Accepted a connection from")
	assert.Contains(t, theirs, "receiver\n")
	assert.Contains(t, c.stderr.String(), `send "{\"params\":{\"test\":\"bw\"`)
	assert.Contains(t, c.stderr.String(), `receive "{\"do\":\"ready\"}"`)
	c = newProgram(t, nil, "-c", "localhost", "-p", port, "-n", "1M", "--get-server-output", "-J")
	require.Zero(t, c.run(t), c.stderr.String())
	var run struct {
		Text string `json:"server_output_text"`
	}
	require.NoError(t, json.Unmarshal(c.stdout.Bytes(), &run))
	assert.Contains(t, run.Text, "receiver\n")
	srv.interrupt(t)
	assert.Contains(t, srv.stdout.String(), run.Text, "the server prints it too")
	assert.Equal(t, exitBadInput, newProgram(t, nil, "bw", "--get-server-output").run(t))
}

// At a rate, an amount takes at least its time.
func TestRateLimits(t *testing.T) {
	for _, args := range []string{"bw -b 8M -l 1000 -k 300", "bw -b 8M/10 -l 1000 -k 300 -R", "loaded -b 1K -k 300"} {
		p := newProgram(t, nil, append(strings.Fields(args), "-J")...)
		require.Zero(t, p.run(t), p.stderr.String())
		var run struct {
			End struct {
				Sent struct {
					Seconds float64
					Bytes   uint64
				} `json:"sum_sent"`
			}
		}
		require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &run))
		assert.Positive(t, run.End.Sent.Bytes)
		assert.GreaterOrEqual(t, run.End.Sent.Seconds, 0.28, args) // 300 ms less the last burst
	}
}

// -w sets both buffers of a data connection. Linux doubles what is asked for.
func TestWindowSetsBuffers(t *testing.T) {
	srv, port := startServer(t, "--transport", "tcp")
	c := newProgram(t, nil, "-c", "127.0.0.1", "-p", port, "--transport", "tcp", "-w", "40K", "-t", "3600")
	c.start(t)
	for _, p := range []*program{srv, c} {
		eventually(t, "a socket has these buffers", func() bool { return hasBuffers(t, p.Process.Pid, 80<<10) })
	}
	require.NoError(t, c.Process.Signal(os.Interrupt))
	assert.Equal(t, exitInterrupted, c.wait(t))
	srv.interrupt(t)
}

// hasBuffers reports whether a process has a socket with buffers of so many bytes.
func hasBuffers(t *testing.T, pid, bytes int) bool {
	t.Helper()
	process, err := unix.PidfdOpen(pid, 0)
	require.NoError(t, err)
	defer unix.Close(process)
	links, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	require.NoError(t, err)
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || !strings.HasPrefix(to, "socket:") {
			continue // it may be closed by now
		}
		n, err := strconv.Atoi(filepath.Base(link))
		require.NoError(t, err)
		fd, err := unix.PidfdGetfd(process, n, 0)
		if err == unix.EPERM || err == unix.ENOSYS {
			t.Skip("WARNING: no look at the sockets of another process: ", err)
		} else if err != nil {
			continue
		}
		in, inErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		out, outErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		unix.Close(fd)
		if inErr == nil && outErr == nil && in == bytes && out == bytes {
			return true
		}
	}
	return false
}

// A dial that nobody answers ends by --connect-timeout. One of an hour that began before still waits.
func TestConnectTimeout(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	port := strconv.Itoa(name.(*unix.SockaddrInet4).Port)
	full, err := net.Dial("tcp", "127.0.0.1:"+port) // the queue has room for one
	require.NoError(t, err)
	defer full.Close()
	args := []string{"-c", "127.0.0.1", "--transport", "tcp", "-p", port, "--connect-timeout"}
	long := newProgram(t, nil, append(args, "3600000")...)
	long.start(t)
	short := newProgram(t, nil, append(args, "100")...)
	assert.Equal(t, 2, short.run(t))
	assertOneLine(t, short.stderr.String(), "i/o timeout")
	require.NoError(t, long.Process.Signal(os.Interrupt)) // which kills it if it has only begun
	assert.NotEqual(t, exitBadInput, long.wait(t), "it has ended by itself")
}

// --logfile has the output of each run, in place of the standard output.
func TestLogfileIsAppendedTo(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for range 2 {
		p := newProgram(t, nil, "lat", "-k", "10", "--logfile", log)
		require.Zero(t, p.run(t), p.stderr.String())
		assert.Empty(t, p.stdout.String())
	}
	b, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(b), "Connected to"))
	assert.Equal(t, 2, strings.Count(string(b), "CPU there:"))
}

// Each line of --json-stream is an event; what ends a run early is one too.
func TestStreamOfJSON(t *testing.T) {
	p := newProgram(t, nil, "bw", "-t", "0.3", "-i", "0.05", "--json-stream")
	require.Zero(t, p.run(t), p.stderr.String())
	var names []string
	var bytes, sent float64
	for line := range strings.Lines(p.stdout.String()) {
		var e struct {
			Event string
			Data  map[string]map[string]any
		}
		_ = json.Unmarshal([]byte(line), &e) // data of the start is of many types
		names = append(names, e.Event)
		switch e.Event {
		case "interval":
			bytes += e.Data["sum"]["bytes"].(float64)
		case "end":
			sent = e.Data["sum_sent"]["bytes"].(float64)
		}
	}
	require.Greater(t, len(names), 2)
	assert.Equal(t, "start", names[0])
	for _, name := range names[1 : len(names)-1] {
		assert.Equal(t, "interval", name)
	}
	assert.Equal(t, "end", names[len(names)-1])
	assert.Positive(t, bytes)
	assert.LessOrEqual(t, bytes, sent)
	full := newProgram(t, nil, "bw", "-t", "3600", "-i", "0.01", "--json-stream")
	full.start(t)
	eventually(t, "an interval", func() bool { return strings.Contains(full.stdout.String(), `"event":"interval"`) })
	require.NoError(t, full.Process.Signal(os.Interrupt))
	assert.Equal(t, exitInterrupted, full.wait(t))
	assert.Contains(t, full.stdout.String(), `"event":"error"`)
}
