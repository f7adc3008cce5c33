//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// refused runs sdp-proxy, which must not start, and checks its message.
func refused(t *testing.T, want string, args []string, options ...option) {
	t.Helper()
	p := start(t, filepath.Join(programs, "sdp-proxy"), args, append([]option{withEnv(fabric(t))}, options...)...)
	if s := p.status(); s != 2 {
		t.Errorf("%q: status %d, want 2", args, s)
	}
	if out := p.out.String(); !strings.Contains(out, want) || strings.Count(out, "\n") != 1 {
		t.Errorf("%q: %q, want one line with %q", args, out, want)
	}
}

func TestAddressInUseIsOneLineAndStatus2(t *testing.T) {
	target := echo(t)
	socket := filepath.Join(shortDir(t), "s")
	p := startProxy(t, fabric(t), nil, "tcp://127.0.0.1:0="+target, "sdp://localhost:0="+target, "unix://"+socket+"="+target)
	for i, used := range p.listening {
		// The first map could be served. But all maps are served, or none.
		refused(t, "cannot listen on "+used+": address already in use", []string{
			"--map", "tcp://127.0.0.1:0=" + target, "--map", used + "=" + target})
		if !strings.HasPrefix(used, "sdp://") {
			mustEcho(t, p.dial(i), "still served")
		}
	}
}

func TestPermissionIsOneLineAndStatus2(t *testing.T) {
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	options := []option{}
	if os.Getuid() == 0 { // root may create any file
		options = append(options, func(c *exec.Cmd) {
			c.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		})
	}
	refused(t, "permission denied; this user may not create it",
		[]string{"--map", "unix://" + dir + "/s=tcp://127.0.0.1:1"}, options...)
}

func TestUnixSocketOfAKilledProxyIsReplaced(t *testing.T) {
	target := echo(t)
	socket := filepath.Join(shortDir(t), "s")
	first := startProxy(t, fabric(t), nil, "unix://"+socket+"="+target)
	first.signal(syscall.SIGKILL)
	first.status()
	if _, err := os.Lstat(socket); err != nil {
		t.Fatalf("nothing to replace: %v", err)
	}
	second := startProxy(t, fabric(t), nil, "unix://"+socket+"="+target)
	c := second.dial(0)
	mustEcho(t, c, "hello")
	c.Close()
	second.stop()
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestLackOfDescriptorsIsWaitedOut(t *testing.T) {
	const limit, clients = 32, 40
	target := echo(t)
	script := fmt.Sprintf(`ulimit -n %d && exec "$0" --stats --map "tcp://127.0.0.1:0=%s"`, limit, target)
	p := &proxy{process: start(t, tool(t, "sh"), []string{"-c", script, filepath.Join(programs, "sdp-proxy")}, withEnv(fabric(t)))}
	p.listening = []string{p.waitFor(readyLine, 1)[0][1]}
	address := strings.TrimPrefix(p.listening[0], "tcp://")
	var all []net.Conn
	for range clients {
		// Connections for whose target there is no descriptor are reset, some
		// before Dial returns.
		if c, err := net.Dial("tcp", address); err == nil {
			defer c.Close()
			all = append(all, c)
		}
	}
	eventually(t, "the lack is logged", func() bool {
		return strings.Contains(p.out.String(), syscall.EMFILE.Error())
	})
	if p.over() {
		t.Fatal("the proxy has ended")
	}
	for _, c := range all {
		c.Close()
	}
	eventually(t, "it serves again", func() bool { return answers(address) })
	p.signal(syscall.SIGTERM)
	if s := p.status(); s != 0 {
		t.Errorf("status %d, want 0", s)
	}
}

// answers reports whether an echo server is reached through a proxy at address.
func answers(address string) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err == nil
}
