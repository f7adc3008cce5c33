//go:build linux

package integration

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	fabrics "github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/listen"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// meeting is the outcome of what one user's process asked for.
type meeting struct {
	attempt
	Address       string            // of a listener
	By            string            // transport
	Name          string            // of the server, as it says
	Peer          *sdp.Peer         `json:",omitempty"` // user of the server, if the kernel knows
	Stats         *sdp.NetworkStats `json:",omitempty"`
	Local, Remote string            // of the connection
}

// playUser does what its lines say, in the fabric of SDP_FABRIC:
//
//	listen NETWORK ADDRESS NAME [uid=UID|gid=GID|unknown|tcp|shared ...]
//	                             serves NAME until the process ends, to all or to these users;
//	                             "shared": on a port that other processes may have too
//	dial NETWORK ADDRESS         asks the server there for its name
//	http NETWORK ADDRESS         serves payloadHandler until the process ends
//	get NETWORK ADDRESS N BYTES  sends as much to that server, and gets it back, N times
//	flows NETWORK ADDRESS        accepts flows until the process ends
//	flow NETWORK ADDRESS N BYTES has N flows to that server at the same time
//	hold NETWORK ADDRESS         waits until a connection to that server ends
//	eat BYTES                    uses as much memory
//	networks                     returns the counters of network "tcp"
func playUser(p *self) error {
	u := &user{}
	defer u.close()
	p.printf("ready")
	return p.answerAll(func(w []string) any { return u.do(w) })
}

type user struct {
	stops []func() // ends what the process serves
	eaten []byte
}

func (u *user) close() {
	for _, stop := range u.stops {
		stop()
	}
}

func (u *user) do(w []string) (m meeting) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var n, bytes int
	if len(w) == 5 && (w[0] == "get" || w[0] == "flow") {
		n, _ = strconv.Atoi(w[3])
		bytes, _ = strconv.Atoi(w[4])
	}
	var err error
	switch w[0] {
	case "listen", "http", "flows":
		m.Address, err = u.serve(ctx, w)
	case "dial":
		err = m.dial(ctx, w[1], w[2])
	case "get":
		m.By, err = getAll(ctx, w[1], w[2], n, int64(bytes))
	case "flow":
		m.By, err = flowAll(ctx, w[1], w[2], n, int64(bytes))
	case "hold":
		err = hold(ctx, w[1], w[2])
	case "networks":
		n := sdp.DefaultStats().Networks
		m.Stats = &n
	case "eat":
		if bytes, err = strconv.Atoi(w[1]); err == nil {
			u.eaten = make([]byte, bytes)
			for i := range u.eaten {
				u.eaten[i] = 1
			}
		}
	default:
		err = fmt.Errorf("what? %q", w)
	}
	m.attempt = newAttempt(err, 0)
	return m
}

// serve listens, and serves by name, HTTP or flows.
func (u *user) serve(ctx context.Context, w []string) (address string, err error) {
	var allowed []string
	if w[0] == "listen" {
		allowed = w[4:]
	}
	shared := slices.Index(allowed, "shared")
	if shared >= 0 {
		allowed = slices.Delete(allowed, shared, shared+1)
	}
	lc := allowing(allowed)
	if shared >= 0 {
		lc.TCP = &net.ListenConfig{Control: reusePort}
	}
	ln, err := lc.Listen(ctx, w[1], w[2])
	if err != nil {
		return "", err
	}
	switch w[0] {
	case "listen":
		u.stops = append(u.stops, serveLab(ln, w[3]).stop)
	case "http":
		srv := &http.Server{Handler: payloadHandler()}
		done := make(chan struct{})
		go func() {
			srv.Serve(ln) // until Close
			close(done)
		}()
		u.stops = append(u.stops, func() {
			srv.Close()
			<-done
		})
	case "flows":
		u.stops = append(u.stops, serveFlows(ln))
	}
	return ln.Addr().String(), nil
}

// reusePort lets several sockets share a port.
func reusePort(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); e != nil {
		return e
	}
	return err
}

// serveFlows accepts flows until stop is called. A flow that fails, fails at the other side too.
func serveFlows(ln net.Listener) (stop func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				(&flow{c: c}).accepted()
			})
		}
	})
	return func() {
		ln.Close()
		wg.Wait()
	}
}

func (m *meeting) dial(ctx context.Context, network, address string) error {
	c, err := (&sdp.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	name, err := io.ReadAll(c)
	m.Name, m.By = string(name), transportOf(c)
	m.Local, m.Remote = c.LocalAddr().String(), c.RemoteAddr().String()
	if c, ok := c.(*sdp.Conn); ok {
		if p, ok := c.Peer(); ok {
			m.Peer = &p
		}
	}
	return err
}

// getAll sends bytes to a server of HTTP and gets them back, n times, by one connection. It
// returns the transport.
func getAll(ctx context.Context, network, address string, n int, bytes int64) (by string, err error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := sdp.DialContext(ctx, network, address)
		if err == nil {
			by = transportOf(c)
		}
		return c, err
	}}
	defer transport.CloseIdleConnections()
	sent := sha256.New()
	if _, err := io.CopyN(sent, newStream(1), bytes); err != nil {
		return by, err
	}
	want := fmt.Sprintf("%d %x <nil>", bytes, sent.Sum(nil))
	// request makes a request, and has read check the answer.
	request := func(method, path string, body io.Reader, read func(answer io.Reader) error) error {
		req, err := http.NewRequestWithContext(ctx, method, "http://server"+path, body)
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return read(resp.Body)
	}
	for range n {
		err = request("PUT", "/sum", io.LimitReader(newStream(1), bytes), func(answer io.Reader) error {
			got, err := io.ReadAll(answer)
			if err == nil && string(got) != want {
				err = fmt.Errorf("the server has received %s, want %s", got, want)
			}
			return err
		})
		if err == nil {
			err = request("GET", fmt.Sprintf("/stream?n=%d", bytes), nil, func(answer io.Reader) error {
				return newStream(1).readExactly(answer, bytes)
			})
		}
		if err != nil {
			return by, err
		}
	}
	return by, nil
}

// flowAll has n flows at the same time. It returns the transport of one.
func flowAll(ctx context.Context, network, address string, n int, bytes int64) (by string, err error) {
	failed := make(chan error, n)
	for i := range n {
		c, err := sdp.DialContext(ctx, network, address)
		if err != nil {
			return by, err
		}
		defer c.Close()
		by = transportOf(c)
		go func() { failed <- (&flow{c: c, seed: i, n: bytes}).dialling() }()
	}
	for range n {
		err = errors.Join(err, <-failed)
	}
	return by, err
}

// hold waits until a connection ends, and returns the error of that, which is not nil.
func hold(ctx context.Context, network, address string) error {
	c, err := sdp.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	if _, err = c.Read(make([]byte, 1)); err == nil {
		return errors.New("the server has sent something")
	}
	return err
}

// allowing returns a configuration that accepts the users that the words name.
func allowing(words []string) *sdp.ListenConfig {
	if len(words) == 0 {
		return &sdp.ListenConfig{}
	}
	return &sdp.ListenConfig{
		AllowUnknown: slices.Contains(words, "unknown"),
		AllowTCP:     slices.Contains(words, "tcp"),
		Allow: func(p sdp.Peer) error {
			for _, w := range words {
				kind, digits, _ := strings.Cut(w, "=")
				id, _ := strconv.Atoi(digits)
				if kind == "uid" && p.UID == id || kind == "gid" && p.In(id) {
					return nil
				}
			}
			return fmt.Errorf("want %v", words)
		},
	}
}

// meets asks for something that works.
func (p *peer) meets(format string, args ...any) (m meeting) {
	p.t.Helper()
	question := fmt.Sprintf(format, args...)
	p.askFor(question, &m)
	require.Empty(p.t, m.Error, question)
	return m
}

// misses asks for something that does not work.
func (p *peer) misses(format string, args ...any) (m meeting) {
	p.t.Helper()
	question := fmt.Sprintf(format, args...)
	p.askFor(question, &m)
	require.NotEmpty(p.t, m.Error, question)
	return m
}

// Numbers of users and of a group that nobody here has.
const (
	userA, userB, userC = 41_001, 41_002, 41_003
	shopGID             = 41_100
)

// shop makes a directory that a group shares, and the fabric there is that of the test and of
// the processes that it starts. It returns the directory and a program that all may run.
func shop(t *testing.T) (dir, exe string) {
	t.Helper()
	leak.Check(t)
	exe = strangerExe(t)
	dir = filepath.Join(filepath.Dir(exe), "shop")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chown(dir, 0, shopGID))
	require.NoError(t, unix.Chmod(dir, unix.S_ISGID|unix.S_ISVTX|0o770))
	return dir, exe
}

// startUser starts a process of a user with groups, and of a fabric.
func startUser(t *testing.T, exe, fabric string, uid int, groups []uint32, options ...peerOption) *peer {
	t.Helper()
	options = append([]peerOption{asUser(exe, uid), func(c *exec.Cmd) {
		c.SysProcAttr.Credential.Groups = groups
		c.Env = append(c.Env, "SDP_FABRIC="+fabric)
	}}, options...)
	p := startPeer(t, "user", nil, options...)
	require.Equal(t, "ready", p.readLine())
	return p
}

var inShop = []uint32{7, shopGID}

func TestUsersOfAGroupMeet(t *testing.T) {
	dir, exe := shop(t)
	fabric := "shm:" + dir
	a, b := startUser(t, exe, fabric, userA, inShop), startUser(t, exe, fabric, userB, inShop)
	root := startUser(t, exe, fabric, 0, nil)
	for _, network := range []string{"sdp", "tcp"} {
		address := a.meets("listen %s localhost:0 a", network).Address
		for _, p := range []*peer{a, b, root} {
			m := p.meets("dial %s %s", network, address)
			require.Equal(t, "a", m.Name)
			require.Equal(t, "sdp", m.By)
			require.NotNil(t, m.Peer)
			require.Equal(t, []int{a.cmd.Process.Pid, userA, userA}, []int{m.Peer.PID, m.Peer.UID, m.Peer.GID})
			require.ElementsMatch(t, []int{7, shopGID}, m.Peer.Groups)
		}
	}
	// Both sides can be of either user.
	address := b.meets("listen sdp localhost:80 b").Address
	require.Equal(t, "b", a.meets("dial sdp %s", address).Name)
	used := a.misses("listen sdp localhost:80 a")
	require.Contains(t, used.Error, "address already in use")

	// A user without the group is told what is missing.
	c := startUser(t, exe, fabric, userC, []uint32{7})
	for _, call := range []string{"dial sdp " + address, "listen sdp localhost:0 c"} {
		m := c.misses("%s", call)
		m.denied(t)
		require.Contains(t, m.Error, fmt.Sprintf("belongs to group %d, of which %d is not a member: usermod -a -G", shopGID, userC))
	}
	for _, p := range []*peer{a, b, c, root} {
		p.end()
	}
	names := dirNames(t, dir)
	require.Equal(t, []string{claimFile}, names)
}

// Each listener accepts the users that it wants. Who is refused learns as whom, does not come
// by TCP, and is logged.
func TestListenersChooseUsers(t *testing.T) {
	dir, exe := shop(t)
	fabric := "shm:" + dir
	a, b := startUser(t, exe, fabric, userA, inShop), startUser(t, exe, fabric, userB, []uint32{8, shopGID})
	allowed := map[string][2]bool{ // of users A and B
		fmt.Sprint("uid=", userA):             {true, false},
		fmt.Sprint("uid=", userB):             {false, true},
		"gid=8":                               {false, true},
		fmt.Sprint("gid=", shopGID):           {true, true},
		fmt.Sprint("gid=7 uid=", userB):       {true, true},
		"uid=-1":                              {false, false},
		fmt.Sprint("unknown tcp uid=", userB): {false, true},
	}
	for words, want := range allowed {
		for _, network := range []string{"sdp", "tcp"} {
			address := a.meets("listen %s localhost:0 a %s", network, words).Address
			for i, p := range []*peer{a, b} {
				question := fmt.Sprintf("dial %s %s", network, address)
				if want[i] {
					require.Equal(t, "sdp", p.meets("%s", question).By, "%s: %s", words, question)
					continue
				}
				m := p.misses("%s", question)
				m.denied(t)
				require.Empty(t, m.By)
				require.Contains(t, m.Error, fmt.Sprintf("this process is uid %d, gid %[1]d, groups [%d %d]", []int{userA, userB}[i], []int{7, 8}[i], shopGID))
			}
			if _, port, err := net.SplitHostPort(address); err == nil && network == "tcp" && !strings.Contains(words, "tcp") {
				c, err := net.Dial("tcp", "localhost:"+port) // of a program that uses net
				if err == nil {
					c.SetDeadline(time.Now().Add(testTimeout))
					_, err = io.ReadAll(c)
					c.Close()
				}
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
		}
	}
	// Of what happens within a second the first is logged.
	quiet := startUser(t, exe, fabric, userC, inShop)
	address := quiet.meets("listen sdp localhost:0 quiet uid=%d", userA).Address
	b.misses("dial sdp %s", address).denied(t)
	quiet.in.Close()
	quiet.wait()
	require.Equal(t, 1, strings.Count(quiet.stderr.String(), "\n"))
	require.Contains(t, quiet.stderr.String(), fmt.Sprintf("refuses a connection of pid %d, uid %d, gid %[2]d, groups [8 %d]: want [uid=%d]", b.cmd.Process.Pid, userB, shopGID, userA))
	b.end()
	a.in.Close()
	a.wait()
}

// A proxy serves the users that its flags name.
func TestAProxyForSomeUsers(t *testing.T) {
	dir, exe := shop(t)
	fabric := "shm:" + dir
	target, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer serveLab(target, "target").stop()
	to := "=tcp://" + target.Addr().String()
	first := startProxy(t, "SDP_FABRIC="+fabric, []string{"--allow-user", strconv.Itoa(userA)}, "sdp://localhost:0"+to)
	second := startProxy(t, "SDP_FABRIC="+fabric, []string{"--allow-user", strconv.Itoa(userA) + ",0", "--allow-group", "8"}, "sdp://localhost:0"+to)
	a, b := startUser(t, exe, fabric, userA, inShop), startUser(t, exe, fabric, userB, []uint32{8, shopGID})
	ask := func(p *proxy) string { return "dial sdp " + strings.TrimPrefix(p.listening[0], "sdp://") }
	require.Equal(t, "target", a.meets("%s", ask(first)).Name)
	b.misses("%s", ask(first)).denied(t)
	require.Equal(t, "target", a.meets("%s", ask(second)).Name)
	require.Equal(t, "target", b.meets("%s", ask(second)).Name)
	first.waitFor(regexp.MustCompile(fmt.Sprintf(`refuses a connection of pid %d, uid %d`, b.cmd.Process.Pid, userB)), 1)
	a.end()
	b.end()
	first.stop()
	second.stop()
}

// The kernel does not know the users of another node, and knows those of the same one.
func TestListenersChooseUsersInARing(t *testing.T) {
	dir, exe := shop(t)
	ring := "ring:" + dir
	one := startUser(t, exe, ring+"?node=1&nodes=2", userA, inShop)
	two := startUser(t, exe, ring+"?node=2&nodes=2", userB, inShop)
	guest := startUser(t, exe, ring+"?node=1", userC, inShop)
	other := startUser(t, exe, ring+"?node=1", userB, inShop)
	for _, p := range []*peer{one, two} { // so that their fabric stays open
		require.NotEmpty(t, p.meets("listen sdp :7 owner").Address)
	}
	all := fmt.Sprint("gid=", shopGID)
	require.NotEmpty(t, guest.meets("listen sdp :8 closed %s", all).Address)
	require.NotEmpty(t, guest.meets("listen sdp :9 open %s unknown", all).Address)
	two.misses("dial sdp node1:8").denied(t)
	m := two.meets("dial sdp node1:9")
	require.Equal(t, "open", m.Name)
	require.Nil(t, m.Peer)
	for _, p := range []*peer{one, other} { // of the same node
		for range 20 { // whether the link to the owner is up or not
			m := p.meets("dial sdp node1:8")
			require.NotNil(t, m.Peer)
			require.Equal(t, userC, m.Peer.UID)
		}
	}
	for _, p := range []*peer{other, two, one} {
		p.end()
	}
	guest.in.Close()
	guest.wait()
	require.Contains(t, guest.stderr.String(), "ListenConfig.AllowUnknown accepts those")
}

// The owner of a node's links, its member, and another node are processes of three users.
func TestUsersOfAGroupMeetInARing(t *testing.T) {
	dir, exe := shop(t)
	ring := "ring:" + dir
	one := startUser(t, exe, ring+"?node=1&nodes=2", userA, inShop)
	two := startUser(t, exe, ring+"?node=2&nodes=2", userB, inShop)
	guest := startUser(t, exe, ring+"?node=1", userC, inShop)
	require.NotEmpty(t, one.meets("listen sdp :8 one").Address)
	require.NotEmpty(t, two.meets("listen sdp :8 two").Address)
	require.NotEmpty(t, guest.meets("listen sdp :9 guest").Address)
	require.Equal(t, "two", guest.meets("dial sdp node2:8").Name)
	require.Equal(t, "one", guest.meets("dial sdp node1:8").Name)
	require.Equal(t, "guest", two.meets("dial sdp node1:9").Name)
	require.Equal(t, "guest", one.meets("dial sdp node1:9").Name)
	for _, p := range []*peer{guest, two, one} {
		p.end()
	}
	require.ElementsMatch(t, []string{"node1-" + claimFile, "node2-" + claimFile}, dirNames(t, dir))
}

// Processes in two network namespaces meet in a common directory by network sdp. By network
// tcp each reaches what net reaches.
func TestNetworkNamespacesShareADirectory(t *testing.T) {
	dir, exe := shop(t)
	forbidden(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	apart := func(c *exec.Cmd) { c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET }
	a := startUser(t, exe, "shm:"+dir, userA, inShop, apart)
	b := startUser(t, exe, "shm:"+dir, userB, inShop, apart)
	here := startUser(t, exe, "shm:"+dir, userB, inShop)
	address := a.meets("listen sdp localhost:0 a").Address
	for _, p := range []*peer{a, b, here} {
		require.Equal(t, "a", p.meets("dial sdp %s", address).Name)
	}
	address = here.meets("listen tcp 127.0.0.1:0 here").Address
	require.Equal(t, "sdp", here.meets("dial tcp %s", address).By)
	m := a.misses("dial tcp %s", address) // loopback is down there
	require.Contains(t, m.Error, "network is unreachable")
	for _, p := range []*peer{a, b, here} {
		p.end()
	}
}

// In a volume where everybody may write, as in a container, the first process makes the
// directory, and says what strangers can do.
func TestUsersOfAGroupMeetInAVolume(t *testing.T) {
	dir, exe := shop(t)
	volume := filepath.Join(filepath.Dir(dir), "volume")
	require.NoError(t, os.Mkdir(volume, 0o700))
	require.NoError(t, os.Chmod(volume, 0o777))
	fabric := fmt.Sprintf("shm:%s/shop?group=%d&owner=%d,%d", volume, shopGID, userA, userB)
	a := startUser(t, exe, fabric, userA, inShop)
	b := startUser(t, exe, fabric, userB, inShop)
	address := a.meets("listen sdp localhost:0 a").Address
	require.Equal(t, "a", b.meets("dial sdp %s", address).Name)
	a.in.Close()
	a.wait()
	said := a.stderr.String()
	require.Equal(t, 1, strings.Count(said, "\n"), said)
	require.Contains(t, said, "a stranger can hide the fabric, by renaming it, or by making it first, but cannot enter it")
	b.end()

	// A stranger has made it first.
	require.NoError(t, os.RemoveAll(volume+"/shop"))
	squatter := startStranger(t, exe, nobody)
	require.Equal(t, attempt{}, squatter.try("mkdir "+volume+"/shop"))
	b = startUser(t, exe, fabric, userB, inShop)
	for _, call := range []string{"dial sdp " + address, "listen sdp localhost:0 b", "listen tcp localhost:0 b", "dial tcp localhost:1"} {
		var m meeting
		b.askFor(call, &m)
		m.denied(t)
		require.Contains(t, m.Error, volume+"/shop belongs to ")
		require.Contains(t, m.Error, "-g "+strconv.Itoa(shopGID))
	}
	squatter.end()
	b.end()
}

// playHijacker publishes that it accepts connections for the TCP socket of another user, at an
// address, in a fabric: ADDRESS FABRIC.
func playHijacker(p *self) error {
	at, err := netip.ParseAddrPort(p.args[0])
	if err != nil {
		return err
	}
	spec, err := spec.Parse(p.args[1])
	if err != nil {
		return err
	}
	var kernel inetdiag.Kernel
	defer kernel.Close()
	socket, ok, err := kernel.Listening(at, 0)
	if err != nil || !ok {
		return fmt.Errorf("no socket at %v: %w", at, err)
	}
	h := &hijacker{listen.NewTable(), socket.Socket}
	ln := h.table.Listen(0, listen.Config{TCP: &listen.TCP{
		Socket: listen.Socket{Cookie: socket.Cookie, Namespace: socket.Namespace},
		Addresses: func(*link.Peer, *hello.Hello) (listen.Addresses, hello.Reason) {
			return listen.Addresses{Local: at, Remote: at}, 0
		},
	}})
	f, err := fabrics.Open(spec, func(f *fabrics.Fabric) { f.Node().Register(link.ServiceSDP, h) })
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.PublishSocket(int(at.Port()), socket.Cookie); err != nil {
		return err
	}
	p.printf("ready")
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			a.Pair.Write([]byte("hijacked"))
			a.Pair.Close()
			h.table.Release(a.Addresses)
		}
	}()
	p.stay()
	return ln.Close()
}

type hijacker struct {
	table  *listen.Table
	socket inetdiag.Socket // which it says to serve
}

type hijacked struct {
	*hijacker
	pool *bounce.Pool
}

func (h *hijacker) Open(p *link.Peer) link.Handler {
	return &hijacked{h, bounce.NewPool(p, bounce.Options{})}
}

func (h *hijacked) Down(error) { h.pool.Down() }

func (h *hijacked) Message(m []byte) error {
	msg, err := hello.Parse(m)
	if asks, ok := msg.(*hello.Hello); err == nil && ok {
		asks.TCP.Cookie, asks.TCP.Namespace = h.socket.Cookie, h.socket.Namespace // whatever it asks for
		return h.table.Hello(h.pool, asks)
	}
	return err
}

// A member of the group says that it accepts connections for the TCP server of another user.
// By network "tcp" the server is reached, as with net.
func TestAMemberTakesNoConnectionsOfATCPServer(t *testing.T) {
	dir, exe := shop(t)
	fabric := "shm:" + dir
	b := startUser(t, exe, fabric, userB, inShop)
	for _, victim := range []*peer{startLab(t, nil), startUser(t, exe, fabric, userA, inShop)} {
		var address string
		if victim.role == "lab" {
			address = victim.ask("listen victim plain tcp 127.0.0.1:0")
		} else {
			address = victim.meets("listen tcp 127.0.0.1:0 victim").Address
		}
		options := []peerOption{asUser(exe, userC), func(c *exec.Cmd) { c.SysProcAttr.Credential.Groups = inShop }}
		h := startPeer(t, "hijacker", []string{address, fabric}, options...)
		require.Equal(t, "ready", h.readLine())
		for range 5 {
			require.Equal(t, "victim", b.meets("dial tcp %s", address).Name)
		}
		h.end()
		victim.end()
	}
	b.in.Close()
	b.wait()
	require.Equal(t, 0, b.cmd.ProcessState.ExitCode(), b.stderr.String())
	require.Equal(t, 1, strings.Count(b.stderr.String(), "\n"), b.stderr.String())
	require.Contains(t, b.stderr.String(), `network "tcp" uses TCP: a process of another user serves the socket`)
}

// playBlocker publishes that it accepts connections for the TCP socket of another user, at an
// address, in a directory, and then has each wait who connects a cable: ADDRESS DIRECTORY HOW.
func playBlocker(p *self) error {
	at, err := netip.ParseAddrPort(p.args[0])
	if err != nil {
		return err
	}
	var kernel inetdiag.Kernel
	defer kernel.Close()
	socket, ok, err := kernel.Listening(at, 0)
	if err != nil || !ok {
		return fmt.Errorf("no socket at %v: %w", at, err)
	}
	d, err := hostdir.Open(hostdir.At(p.args[1], 0, ""), true)
	if err != nil {
		return err
	}
	defer d.Close()
	process, err := d.ClaimProcess()
	if err != nil {
		return err
	}
	l, err := d.Listen(process)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := d.PublishSocket(int(at.Port()), socket.Cookie); err != nil {
		return err
	}
	switch p.args[2] {
	case "silent":
		go func() {
			for {
				c, err := d.Accept(l)
				if err != nil {
					return
				}
				defer c.Close()
			}
		}()
	case "full":
		if err := l.Control(func(fd int) error { return syscall.Listen(fd, 0) }); err != nil {
			return err
		}
		c, err := d.Connect(context.Background(), process, nil)
		if err != nil {
			return err
		}
		defer c.Close()
	}
	p.printf("ready")
	if p.args[2] == "stopped" {
		if err := unix.Kill(os.Getpid(), unix.SIGSTOP); err != nil {
			return err
		}
	}
	p.stay()
	return nil
}

// A member of the group says that it accepts connections for the TCP server of another user, and
// does not answer. Network "tcp" does not wait for it.
func TestAMemberDoesNotHoldUpDialsOfATCPServer(t *testing.T) {
	dir, exe := shop(t)
	fabric := "shm:" + dir
	b := startUser(t, exe, fabric, userB, inShop)
	victim := startLab(t, nil)
	address := victim.ask("listen victim plain tcp 127.0.0.1:0")
	for _, how := range []string{"silent", "full", "stopped"} {
		options := []peerOption{asUser(exe, userC), func(c *exec.Cmd) { c.SysProcAttr.Credential.Groups = inShop }}
		h := startPeer(t, "blocker", []string{address, dir, how}, options...)
		require.Equal(t, "ready", h.readLine())
		for range 5 {
			require.Equal(t, "victim", b.meets("dial tcp %s", address).Name, how)
		}
		require.NoError(t, h.cmd.Process.Kill())
		h.wait()
	}
	victim.end()
	b.in.Close()
	b.wait()
	require.Equal(t, 0, b.cmd.ProcessState.ExitCode(), b.stderr.String())
	// It was not tried by shared memory first.
	require.Equal(t, 1, strings.Count(b.stderr.String(), "\n"), b.stderr.String())
	require.Contains(t, b.stderr.String(), `network "tcp" uses TCP: a process of another user serves the socket`)
}

// forbidden skips a test, with a warning, where the kernel allows no such namespace.
func forbidden(t *testing.T, attr *syscall.SysProcAttr) {
	t.Helper()
	trial := exec.Command("true")
	trial.SysProcAttr = attr
	if err := trial.Run(); err != nil {
		fmt.Printf("WARNING: %s is skipped: no such namespace: %v\n", t.Name(), err)
		t.Skip("no such namespace: ", err)
	}
}

// A process of another pid namespace has no number here.
func TestUsersOfAnotherPidNamespace(t *testing.T) {
	dir, exe := shop(t)
	forbidden(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	a := startUser(t, exe, "shm:"+dir, userA, inShop)
	b := startUser(t, exe, "shm:"+dir, userB, inShop, func(c *exec.Cmd) { c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID })
	m := b.meets("dial sdp %s", a.meets("listen sdp localhost:0 a").Address)
	require.Equal(t, []int{0, userA}, []int{m.Peer.PID, m.Peer.UID})
	m = a.meets("dial sdp %s", b.meets("listen sdp localhost:0 b").Address)
	require.Equal(t, []int{b.cmd.Process.Pid, userB}, []int{m.Peer.PID, m.Peer.UID})
	b.end()
	a.end()
}

// In a user namespace a user who has no number there is nobody, and never one who has: the group
// is what lets the user in.
func TestUsersOfAnotherUserNamespace(t *testing.T) {
	dir, exe := shop(t)
	within := func(c *exec.Cmd) {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: 1000, HostID: userA, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: userA, Size: 1}, {ContainerID: 1100, HostID: shopGID, Size: 1}}
		c.SysProcAttr.GidMappingsEnableSetgroups = true
		c.SysProcAttr.Credential = &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{1100}}
	}
	trial := &exec.Cmd{SysProcAttr: &syscall.SysProcAttr{}}
	within(trial)
	forbidden(t, trial.SysProcAttr)
	a := startUser(t, exe, "shm:"+dir, userA, nil, within)
	b := startUser(t, exe, "shm:"+dir, userB, inShop)
	address := b.meets("listen sdp localhost:0 b").Address
	m := a.meets("dial sdp %s", address)
	require.Equal(t, []int{-1, -1}, []int{m.Peer.UID, m.Peer.GID})
	require.ElementsMatch(t, []int{-1, 1100}, m.Peer.Groups)
	require.True(t, m.Peer.In(1100))
	address = a.meets("listen sdp localhost:0 a uid=65534").Address
	b.misses("dial sdp %s", address).denied(t)
	m = b.meets("dial sdp %s", a.meets("listen sdp localhost:0 a gid=1100").Address)
	require.Equal(t, []int{userA, userA}, []int{m.Peer.UID, m.Peer.GID})
	b.end()
	a.in.Close()
	a.wait()
	require.Contains(t, a.stderr.String(), "uid -1, gid -1")
}

// The group of the directory has no number in the user namespace, as with PrivateUsers=yes of
// systemd, which has only those of root and of the service's user.
func TestAGroupThatAUserNamespaceDoesNotHave(t *testing.T) {
	dir, exe := shop(t)
	within := func(c *exec.Cmd) {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: userA, HostID: userA, Size: 1}}
		c.SysProcAttr.UidMappings, c.SysProcAttr.GidMappings = ids, ids
	}
	trial := &exec.Cmd{SysProcAttr: &syscall.SysProcAttr{}}
	within(trial)
	forbidden(t, trial.SysProcAttr)
	a := startUser(t, exe, "shm:"+dir, userA, nil, within)
	for _, call := range []string{"listen sdp localhost:0 a", "dial sdp localhost:1"} {
		m := a.misses("%s", call)
		m.denied(t)
		require.Contains(t, m.Error, dir+" belongs to a group without a number in this user namespace")
	}
	a.end()
	require.Empty(t, dirNames(t, dir))
}
