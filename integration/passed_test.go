//go:build linux

package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// passedSockets are listening sockets, of TCP and of Unix, that a test holds as a service manager does.
type passedSockets struct {
	tcp, unix string // as maps have them
	files     []*os.File
}

func listenForOthers(t *testing.T) *passedSockets {
	t.Helper()
	s := new(passedSockets)
	hold := func(f *os.File, err error) {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		s.files = append(s.files, f)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.tcp = "tcp://" + ln.Addr().String()
	hold(ln.(*net.TCPListener).File())
	ln.Close()
	path := shortDir(t) + "/s"
	ul, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	require.NoError(t, err)
	ul.SetUnlinkOnClose(false)
	s.unix = "unix://" + path
	hold(ul.File())
	ul.Close()
	return s
}

// start starts a proxy with the sockets, by systemd's protocol.
func (s *passedSockets) start(t *testing.T, fabric string, maps ...string) *process {
	t.Helper()
	args := []string{"-c", `LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:db exec "$@"`, "sh", programs + "/sdp-proxy"}
	for _, m := range maps {
		args = append(args, "--map", m)
	}
	return start(t, "/bin/sh", args, withEnv(fabric), func(c *exec.Cmd) { c.ExtraFiles = s.files })
}

// While the proxy is stopped and started again, clients of passed sockets wait, and none is refused.
func TestNoClientOfAPassedSocketIsRefusedAcrossRestarts(t *testing.T) {
	const requests, restarts = 200, 4
	s, target, fabric := listenForOthers(t), echo(t), fabric(t)
	maps := []string{s.tcp + "=" + target, s.unix + "=" + target}
	p := s.start(t, fabric, maps...)
	p.waitFor(readyLine, len(maps))
	var done atomic.Int32 // restarts
	served := make(chan error, 1)
	go func() {
		for i := 0; i < requests || done.Load() < restarts; i++ {
			if err := request([]string{s.tcp, s.unix}[i%2]); err != nil {
				served <- fmt.Errorf("request %d: %w", i, err)
				return
			}
		}
		served <- nil
	}()
	for range restarts {
		p.signal(syscall.SIGTERM)
		require.Zero(t, p.status())
		p = s.start(t, fabric, maps...)
		p.waitFor(readyLine, len(maps))
		done.Add(1)
	}
	require.NoError(t, <-served)
	_, err := os.Stat(s.unix[len("unix://"):])
	require.NoError(t, err, "the file of a passed socket stays")
}

// request has a proxy echo something.
func request(at string) error {
	network, address, _ := strings.Cut(at, "://")
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := io.WriteString(c, "request"); err != nil {
		return err
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != "request" {
		err = fmt.Errorf("read %q", got)
	}
	return err
}

func TestAPassedSocketNeedsAMap(t *testing.T) {
	s, fabric := listenForOthers(t), fabric(t)
	p := s.start(t, fabric, s.tcp+"=tcp://127.0.0.1:1")
	require.Equal(t, 2, p.status())
	require.Equal(t, "sdp-proxy: no map listens at "+s.unix+`, of which the socket was passed as "db"; give it a map, or take it out of the .socket unit`+"\n", p.out.String())
}
