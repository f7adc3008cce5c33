//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// playLab does what its lines say:
//
//	listen NAME ours|plain NETWORK ADDRESS   serves NAME, and says the address or the error
//	dial NETWORK ADDRESS                     says which server net reaches, which sdp, and by what transport
//	adopt NAME                               serves NAME at the listener of descriptor 3
//	close NAME                               ends that server
//	stats                                    says how often no look-up was possible
func playLab(p *self) error {
	l := &lab{servers: map[string]*labServer{}}
	defer l.close()
	if len(p.args) > 0 {
		if err := labBegins[p.args[0]](); err != nil {
			return err
		}
	}
	p.printf("ready")
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		answer, err := l.do(words(line))
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		p.printf("%s", answer)
	}
}

// labBegins are functions that a lab may call before anything else.
var labBegins = map[string]func() error{
	"lo":        loopbackUp,
	"nonetlink": forbidNetlink,
}

type lab struct{ servers map[string]*labServer }

type labServer struct {
	ln   net.Listener
	done sync.WaitGroup
}

func (l *lab) do(w []string) (string, error) {
	switch {
	case len(w) == 5 && w[0] == "listen":
		listen := net.Listen
		if w[2] == "ours" {
			listen = sdp.Listen
		}
		ln, err := listen(w[3], w[4])
		if err != nil {
			return plainError(err), nil
		}
		l.servers[w[1]] = serveLab(ln, w[1])
		return ln.Addr().String(), nil
	case len(w) == 3 && w[0] == "dial":
		byNet, _ := whoAnswers(net.Dial(w[1], w[2]))
		bySDP, by := whoAnswers(sdp.Dial(w[1], w[2]))
		return fmt.Sprintf("%s %s %s", byNet, bySDP, by), nil
	case len(w) == 2 && w[0] == "adopt":
		ln, err := adopt(os.NewFile(3, "listener"))
		if err != nil {
			return "", err
		}
		l.servers[w[1]] = serveLab(ln, w[1])
		return ln.Addr().String(), nil
	case len(w) == 2 && w[0] == "close":
		l.servers[w[1]].stop()
		delete(l.servers, w[1])
		return "closed", nil
	case len(w) == 1 && w[0] == "stats":
		n := sdp.DefaultStats().Networks
		return fmt.Sprint(n.DialNoLookup, n.ListenTCPOnly), nil
	}
	return "", fmt.Errorf("what? %q", w)
}

// adopt makes a listener of a descriptor that the process was given, as a server
// does.
func adopt(file *os.File) (net.Listener, error) {
	defer file.Close()
	ln, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	return (&sdp.ListenConfig{}).Adopt(ln)
}

func (l *lab) close() {
	for _, s := range l.servers {
		s.stop()
	}
}

func serveLab(ln net.Listener, name string) *labServer {
	s := &labServer{ln: ln}
	s.done.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, name)
			c.Close()
		}
	})
	return s
}

func (s *labServer) stop() {
	s.ln.Close()
	s.done.Wait()
}

// whoAnswers returns the name of the server that was reached, or the error in one word,
// and the transport.
func whoAnswers(c net.Conn, err error) (who, by string) {
	if err != nil {
		return plainError(err), "none"
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	name, err := io.ReadAll(c)
	if err != nil {
		return plainError(err), transportOf(c)
	}
	return string(name), transportOf(c)
}

func plainError(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

// loopbackUp brings up loopback in a new network namespace.
func loopbackUp() error { return interfaceUp("lo", netip.Addr{}) }

// forbidNetlink makes socket(AF_NETLINK) fail with EPERM in this process, as in
// some containers.
func forbidNetlink() error {
	return filterCalls([]unix.SockFilter{
		{Code: bpfLoad, K: 0}, // the number of the call
		{Code: bpfEqual, K: unix.SYS_SOCKET, Jf: 3},
		{Code: bpfLoad, K: 16}, // its first argument, the lower half
		{Code: bpfEqual, K: unix.AF_NETLINK, Jf: 1},
		{Code: bpfReturn, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: bpfReturn, K: unix.SECCOMP_RET_ALLOW},
	})
}

// forbidMemory makes memfd_create fail in this process.
func forbidMemory(errno syscall.Errno) error {
	return filterCalls([]unix.SockFilter{
		{Code: bpfLoad, K: 0}, // the number of the call
		{Code: bpfEqual, K: unix.SYS_MEMFD_CREATE, Jf: 1},
		{Code: bpfReturn, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: bpfReturn, K: unix.SECCOMP_RET_ALLOW},
	})
}

// forbidInotify makes inotify_init1 fail in this process, as where no instance is left.
func forbidInotify() error {
	return filterCalls([]unix.SockFilter{
		{Code: bpfLoad, K: 0}, // the number of the call
		{Code: bpfEqual, K: unix.SYS_INOTIFY_INIT1, Jf: 1},
		{Code: bpfReturn, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EMFILE)},
		{Code: bpfReturn, K: unix.SECCOMP_RET_ALLOW},
	})
}

func startLab(t *testing.T, begin []string, options ...peerOption) *peer {
	t.Helper()
	p := startPeer(t, "lab", begin, options...)
	require.Equal(t, "ready", p.readLine())
	return p
}

// Several processes listen on a port, with ours and with plain listeners. Each dialler
// reaches the servers that it would reach with net.
func TestServersOfSeveralProcesses(t *testing.T) {
	newFabric(t)
	labs := []*peer{startLab(t, nil), startLab(t, nil)}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	sets := 60
	if testing.Short() {
		sets = 15
	}
	networks := []string{"tcp", "tcp4", "tcp6"}
	hosts := []string{"127.0.0.1", "127.0.0.2", "::1", "", "0.0.0.0", "::"}
	bySDP := 0
	for set := range sets {
		keep, port := fabrictest.OwnPort(t, r)
		open := map[string]*peer{}
		for i := range 1 + r.IntN(4) {
			kind := []string{"ours", "plain"}[r.IntN(2)]
			name, at := fmt.Sprintf("%s-%d", kind, i), labs[r.IntN(2)]
			answer := at.ask(strings.Join([]string{"listen", name, kind, networks[r.IntN(3)], net.JoinHostPort(hosts[r.IntN(len(hosts))], port)}, " "))
			if strings.HasSuffix(answer, ":"+port) {
				open[name] = at
			}
		}
		for _, host := range hosts {
			question := strings.Join([]string{"dial", networks[r.IntN(3)], net.JoinHostPort(host, port)}, " ")
			answer := words(labs[r.IntN(2)].ask(question))
			require.Equal(t, answer[0], answer[1], "set %d, %s: %q", set, question, answer)
			require.Equal(t, strings.HasPrefix(answer[0], "ours"), answer[2] == "sdp", "set %d, %s: %q", set, question, answer)
			if answer[2] == "sdp" {
				bySDP++
			}
		}
		for name, at := range open {
			require.Equal(t, "closed", at.ask("close "+name))
		}
		keep.Close()
	}
	require.Positive(t, bySDP)
	for _, l := range labs {
		l.end()
	}
}

// A server in another network namespace is not reached, though it is of the same fabric
// and has the same address.
func TestNetworkNamespacesAreApart(t *testing.T) {
	newFabric(t)
	probe := startPeerIn(t, syscall.CLONE_NEWNET)
	here := startLab(t, nil)
	address := here.ask("listen here ours tcp 127.0.0.1:0")
	require.Equal(t, []string{"here", "here", "sdp"}, words(here.ask("dial tcp "+address)))
	require.Equal(t, []string{"ECONNREFUSED", "ECONNREFUSED", "none"}, words(probe.ask("dial tcp "+address)))
	require.Equal(t, address, probe.ask("listen plain plain tcp "+address))
	require.Equal(t, []string{"plain", "plain", "tcp"}, words(probe.ask("dial tcp "+address)))
	require.Equal(t, []string{"here", "here", "sdp"}, words(here.ask("dial tcp "+address)))
	require.Equal(t, "closed", probe.ask("close plain"))
	require.Equal(t, address, probe.ask("listen there ours tcp "+address))
	require.Equal(t, []string{"there", "there", "sdp"}, words(probe.ask("dial tcp "+address)))
	require.Equal(t, []string{"here", "here", "sdp"}, words(here.ask("dial tcp "+address)))
	probe.end()
	here.end()
}

// startPeerIn starts a lab in namespaces of its own, or skips the test where that is
// forbidden.
func startPeerIn(t *testing.T, flags uintptr) *peer {
	t.Helper()
	forbidden(t, &syscall.SysProcAttr{Cloneflags: flags})
	return startLab(t, []string{"lo"}, func(c *exec.Cmd) { c.SysProcAttr.Cloneflags = flags })
}

// Where the kernel does not answer look-ups, network "tcp" is TCP. That is logged
// once.
func TestWithoutNetlinkNetworkTCPIsTCP(t *testing.T) {
	newFabric(t)
	here := startLab(t, nil)
	address := here.ask("listen here ours tcp 127.0.0.1:0")
	there := startLab(t, []string{"nonetlink"})
	require.Equal(t, "here here tcp", there.ask("dial tcp "+address))
	require.Equal(t, "here here tcp", there.ask("dial tcp localhost:"+address[strings.LastIndex(address, ":")+1:]))
	mine := there.ask("listen there ours tcp 127.0.0.1:0")
	require.Equal(t, "there there tcp", there.ask("dial tcp "+mine))
	require.Equal(t, "there there tcp", here.ask("dial tcp "+mine))
	var lookups, listens int
	_, err := fmt.Sscan(there.ask("stats"), &lookups, &listens)
	require.NoError(t, err)
	require.Positive(t, lookups)
	require.Equal(t, 1, listens)
	there.in.Close()
	there.wait()
	require.Equal(t, 1, strings.Count(there.stderr.String(), "\n"), "%s", there.stderr.String())
	require.Contains(t, there.stderr.String(), `network "tcp" uses TCP: the kernel does not say`)
	here.end()
}

// A listener that is passed from one process to the next loses no connection.
func TestAListenerIsHandedOver(t *testing.T) {
	newFabric(t)
	ln, err := sdp.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := ln.Addr().String()
	old := serveLab(ln, "old")
	stop := make(chan struct{})
	seen := make([]map[string]int, 2)
	var dials sync.WaitGroup
	for i, dial := range []func(network, address string) (net.Conn, error){net.Dial, sdp.Dial} {
		seen[i] = map[string]int{}
		dials.Go(func() {
			for {
				who, by := whoAnswers(dial("tcp", address))
				seen[i][who+" "+by]++
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	file, err := ln.(*sdp.TCPListener).Handover()
	require.NoError(t, err)
	next := startLab(t, nil, func(c *exec.Cmd) { c.ExtraFiles = []*os.File{file} })
	require.Equal(t, address, next.ask("adopt new"))
	require.NoError(t, file.Close())
	old.done.Wait() // Accept has returned that the listener is closed
	require.NoError(t, ln.Close())
	for range 20 {
		who, by := whoAnswers(sdp.Dial("tcp", address))
		require.Equal(t, "new sdp", who+" "+by)
		who, _ = whoAnswers(sdp.Dial("sdp", address))
		require.Equal(t, "new", who)
	}
	close(stop)
	dials.Wait()
	for _, s := range seen {
		for who := range s {
			require.Contains(t, []string{"old tcp", "old sdp", "new tcp", "new sdp"}, who)
		}
	}
	next.end()
}

// Processes that share one listening socket all serve it, also over SDP.
func TestProcessesThatShareAListener(t *testing.T) {
	newFabric(t)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	file, err := plain.(*net.TCPListener).File()
	require.NoError(t, err)
	address := plain.Addr().String()
	require.NoError(t, plain.Close())
	share := func(c *exec.Cmd) { c.ExtraFiles = []*os.File{file} }
	one, two := startLab(t, nil, share), startLab(t, nil, share)
	require.NoError(t, file.Close())
	require.Equal(t, address, one.ask("adopt one"))
	require.Equal(t, address, two.ask("adopt two"))
	for range 50 {
		who, by := whoAnswers(sdp.Dial("tcp", address))
		require.Contains(t, []string{"one", "two"}, who)
		require.Equal(t, "sdp", by)
		who, by = whoAnswers(net.Dial("tcp", address))
		require.Contains(t, []string{"one", "two"}, who)
		require.Equal(t, "tcp", by)
	}
	require.Equal(t, "closed", one.ask("close one"))
	who, by := whoAnswers(sdp.Dial("tcp", address))
	require.Equal(t, "two sdp", who+" "+by)
	one.end()
	two.end()
}
