//go:build linux

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// calls are those of a process that wants to meet others. The last one would reach a server by
// TCP.
func calls(server string) []string {
	return []string{"listen sdp localhost:0 x", "dial sdp localhost:1", "listen tcp localhost:0 x", "dial tcp " + server}
}

// Where another user has taken the place of a user's fabrics, or a directory is refused, calls
// fail and say so, on both networks. Nothing is by TCP.
func TestAPlaceThatIsRefusedIsAnError(t *testing.T) {
	leak.Check(t)
	exe := strangerExe(t)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer serveLab(plain, "plain").stop()
	uid := someUID()
	base := fabricBase(uid)
	defer os.RemoveAll(base)
	squatter := startStranger(t, exe, nobody)
	victim := startUser(t, exe, "shm:taken", uid, nil)
	require.Equal(t, attempt{}, squatter.try("mkdir "+base))
	for _, call := range calls(plain.Addr().String()) {
		m := victim.misses("%s", call)
		m.denied(t)
		require.Contains(t, m.Error, fmt.Sprintf("%s belongs to uid %d, and this process is uid %d: have it removed", base, nobody, uid))
	}
	require.Equal(t, attempt{}, squatter.try("remove "+base))
	require.Equal(t, "tcp", victim.meets("dial tcp %s", plain.Addr()).By)
	address := victim.meets("listen tcp localhost:0 x").Address
	require.Equal(t, "sdp", victim.meets("dial tcp %s", address).By)
	squatter.end()
	victim.end()

	dir := filepath.Join(filepath.Dir(exe), "private")
	for fabric, text := range map[string]string{
		"shm:" + dir:                          fmt.Sprintf("uid %d", nobody),
		"shm:" + filepath.Dir(exe):            "chmod 3770",
		"shm:" + filepath.Dir(exe) + "/none":  "mkdir -m 700",
		"shm:" + strings.Repeat("toolong", 9): "want 1 to 32 letters",
	} {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chown(dir, nobody, nobody))
		victim := startUser(t, exe, fabric, uid, nil)
		for _, call := range calls(plain.Addr().String()) {
			require.Contains(t, victim.misses("%s", call).Error, text, call)
		}
		victim.end()
	}
}

// As long as a process is in a fabric, another one gets no exclusive flock on the directory. So
// systemd-tmpfiles leaves it alone.
func TestAFabricIsLocked(t *testing.T) {
	name := newFabric(t)
	p := startPeer(t, "user", nil)
	require.Equal(t, "ready", p.readLine())
	require.NotEmpty(t, p.meets("listen sdp localhost:0 p").Address)
	dir, err := os.Open(filepath.Join(fabricBase(os.Geteuid()), name))
	require.NoError(t, err)
	defer dir.Close()
	require.ErrorIs(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	p.end()
	require.NoError(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}

// playPlaced is a user, and says with what error Accept of its last listener has ended:
//
//	listen NETWORK ADDRESS   serves this process' number
//	accepted                 waits for the end of Accept
//	dial NETWORK ADDRESS     as playUser
func playPlaced(p *self) error {
	if len(p.args) > 0 {
		if err := forbidInotify(); err != nil {
			return err
		}
	}
	u := &user{}
	var open []*serving
	p.printf("ready")
	for {
		line, ok := p.readLine()
		if !ok {
			break
		}
		w := words(line)
		var m meeting
		switch w[0] {
		case "listen":
			ln, err := sdp.Listen(w[1], w[2])
			if m.attempt = newAttempt(err, 0); err == nil {
				m.Address = ln.Addr().String()
				s := &serving{ln, make(chan error, 1)}
				open = append(open, s)
				go func() { s.ended <- s.serve() }()
			}
		case "accepted":
			err := <-open[0].ended
			m.attempt = newAttempt(err, 0)
			if !errors.Is(err, syscall.ESTALE) {
				return err
			}
			open[0].ln.Close()
			open = open[1:]
		default:
			m = u.do(w)
		}
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		p.printf("%s", b)
	}
	for _, s := range open {
		s.ln.Close()
		<-s.ended
	}
	return nil
}

// serving is a listener that serves this process' number.
type serving struct {
	ln    net.Listener
	ended chan error // gets the error of Accept
}

func (s *serving) serve() error {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return err
		}
		fmt.Fprint(c, os.Getpid())
		c.Close()
	}
}

// A listener whose directory was removed or replaced says so, and the process goes on in the new
// one. What is connected stays.
func TestAListenerThatHasLostItsPlaceSaysSo(t *testing.T) {
	losses := map[string]func(dir string) error{
		"removed":      os.RemoveAll,
		"renamed away": func(dir string) error { return os.Rename(dir, dir+"-away") },
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-away"), os.Mkdir(dir, 0o700))
		},
	}
	for _, network := range []string{"sdp", "tcp"} {
		for _, without := range []string{"", "without inotify"} {
			for name, lose := range losses {
				if without != "" && name != "replaced" && !longRun() {
					continue
				}
				t.Run(strings.TrimSpace(network+" "+name+" "+without), func(t *testing.T) { checkLost(t, network, without != "", lose) })
			}
		}
	}
}

func checkLost(t *testing.T, network string, without bool, lose func(string) error) {
	name := newFabric(t)
	dir := filepath.Join(fabricBase(os.Geteuid()), name)
	defer os.RemoveAll(dir + "-away")
	var args []string
	if without {
		args = []string{"without"}
	}
	p := startPeer(t, "placed", args)
	require.Equal(t, "ready", p.readLine())
	first := p.meets("listen %s localhost:0", network).Address
	held, err := sdp.Dial(network, first)
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, wantSDP(held))
	require.NoError(t, lose(dir))
	var m meeting
	if !without {
		p.askFor("accepted", &m)
		require.Contains(t, m.Error, dir+" was removed or replaced")
	}
	second := p.meets("listen %s localhost:0", network).Address
	if without {
		p.askFor("accepted", &m)
		require.Contains(t, m.Error, dir+" was removed or replaced")
	}
	pid := fmt.Sprint(p.cmd.Process.Pid)
	b, err := io.ReadAll(held)
	require.NoError(t, err)
	require.Equal(t, pid, string(b))

	// Processes that were there, and new ones, meet in the new directory.
	var c net.Conn
	until(t, "this process has noticed it too", func() bool {
		if c, err = sdp.Dial(network, second); err != nil {
			return false
		}
		if wantSDP(c) != nil {
			c.Close()
			return false
		}
		return true
	})
	b, err = io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, pid, string(b))
	require.NoError(t, c.Close())
	q := startPeer(t, "placed", nil)
	require.Equal(t, "ready", q.readLine())
	m = q.meets("dial %s %s", network, second)
	require.Equal(t, []string{pid, "sdp"}, []string{m.Name, m.By})
	third := q.meets("listen %s localhost:0", network).Address
	require.Equal(t, fmt.Sprint(q.cmd.Process.Pid), p.meets("dial %s %s", network, third).Name)

	q.in.Close()
	q.wait()
	require.Equal(t, 0, q.cmd.ProcessState.ExitCode(), q.stderr.String())
	p.in.Close()
	p.wait()
	require.Equal(t, 0, p.cmd.ProcessState.ExitCode(), p.stderr.String())
	require.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), p.stderr.String())
	require.Contains(t, p.stderr.String(), "listeners end, since other processes no longer find them")
}

// A process that finds a session's directory, which was not there when another one started, joins
// that one. When all have ended, the next ones meet in the session.
func TestAFabricOutlivesTheBeginOfASession(t *testing.T) {
	leak.Check(t)
	exe := strangerExe(t)
	uid := someUID() + 1
	session, tmp := fmt.Sprintf("/run/user/%d", uid), fmt.Sprintf("/tmp/ntbnet-%d", uid)
	for _, dir := range []string{"/run", "/run/user"} {
		if err := os.Mkdir(dir, 0o755); err == nil {
			defer os.Remove(dir)
		} else if !errors.Is(err, syscall.EEXIST) {
			fmt.Printf("WARNING: %s is skipped: %v\n", t.Name(), err)
			t.Skip("no session can be made: ", err)
		}
	}
	require.NoDirExists(t, session)
	defer os.RemoveAll(tmp)
	defer os.RemoveAll(session)
	begin := func() *peer { return startUser(t, exe, "shm:early", uid, nil) }
	meet := func(listens, dials *peer) {
		t.Helper()
		address := listens.meets("listen tcp localhost:0 name").Address
		m := dials.meets("dial tcp %s", address)
		require.Equal(t, []string{"name", "sdp"}, []string{m.Name, m.By})
	}
	early := begin()
	require.NotEmpty(t, early.meets("listen sdp localhost:0 early").Address)
	require.NoError(t, os.Mkdir(session, 0o700))
	require.NoError(t, os.Chown(session, uid, uid))
	late := begin()
	meet(early, late)
	meet(late, early)
	early.end()
	later := begin()
	meet(late, later)
	meet(later, late)
	require.NoDirExists(t, session+"/ntbnet")
	late.end()
	later.end()
	a, b := begin(), begin()
	meet(a, b)
	meet(b, a)
	require.True(t, claimed(t, session+"/ntbnet/early"))
	require.False(t, claimed(t, tmp+"/early"))
	// The session ends. Those that come now meet elsewhere, and these say so.
	require.NoError(t, os.RemoveAll(session))
	c := begin()
	address := c.meets("listen tcp localhost:0 c").Address
	until(t, "it is noticed", func() bool { return a.meets("dial tcp %s", address).By == "sdp" })
	meet(c, a)
	meet(a, c)
	c.end()
	for _, p := range []*peer{a, b} {
		p.in.Close()
		p.wait()
		require.Contains(t, p.stderr.String(), "listeners end, since other processes no longer find them")
	}
}
