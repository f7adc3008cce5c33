//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb/ntbshm"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// attempt is the outcome of something that another user tried.
type attempt struct {
	Error      string // "" if it worked
	Permission bool   // errors.Is finds fs.ErrPermission
	Errno      bool   // errors.Is finds EPERM or EACCES
	Refused    bool   // errors.Is finds ECONNREFUSED
	Reset      bool   // errors.Is finds ECONNRESET
	Bytes      int    // received
}

func newAttempt(err error, n int) attempt {
	a := attempt{Bytes: n}
	if err != nil {
		a.Error = err.Error()
		a.Permission = errors.Is(err, fs.ErrPermission)
		a.Errno = errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)
		a.Refused = errors.Is(err, syscall.ECONNREFUSED)
		a.Reset = errors.Is(err, syscall.ECONNRESET)
	}
	return a
}

// denied expects an error that reports a lack of permission.
func (a attempt) denied(t *testing.T) {
	t.Helper()
	require.True(t, a.Permission && a.Errno, "%+v", a)
	require.Zero(t, a.Bytes)
}

// playStranger tries what the test tells it to.
func playStranger(p *self) error {
	return p.answerAll(func(w []string) any {
		n, err := try(w[0], w[1:])
		return newAttempt(err, n)
	})
}

func try(verb string, args []string) (n int, err error) {
	switch verb {
	case "uid":
		if uid := strconv.Itoa(os.Geteuid()); uid != args[0] {
			err = fmt.Errorf("uid %s", uid)
		}
	case "open": // the fabric that SDP_FABRIC names
		var f *sdp.Fabric
		if f, err = sdp.Open(""); err == nil {
			err = f.Close()
		}
	case "listen":
		var ln net.Listener
		if ln, err = sdp.Listen("sdp", args[0]); err == nil {
			err = ln.Close()
		}
	case "dial":
		var c net.Conn
		if c, err = sdp.DialTimeout("sdp", args[0], testTimeout); err == nil {
			n, err = c.Read(make([]byte, 1))
			c.Close()
		}
	case "list":
		_, err = os.ReadDir(args[0])
	case "read": // a socket
		var c net.Conn
		if c, err = net.Dial("unix", args[0]); err == nil {
			var b []byte
			b, err = io.ReadAll(c)
			n = len(b)
			c.Close()
		}
	case "cable": // as a cable: a socket, dialled as members of the fabric do
		var c *net.UnixConn
		if c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: args[0], Net: "unix"}); err == nil {
			c.SetDeadline(time.Now().Add(testTimeout))
			dev, e := ntbshm.New(c, ntbshm.Options{})
			if err = e; err == nil {
				n = len(dev.Inbound())
				dev.Close()
			}
		}
	case "mkdir":
		err = os.Mkdir(args[0], 0o700)
	case "symlink":
		err = os.Symlink(args[0], args[1])
	case "remove":
		err = os.RemoveAll(args[0])
	default:
		err = fmt.Errorf("unknown verb %q", verb)
	}
	return n, err
}

// try has a stranger try something.
func (p *peer) try(line string) (a attempt) {
	p.t.Helper()
	p.askFor(line, &a)
	return a
}

// nobody is a user without rights.
const nobody = 65534

// strangerExe returns a copy of the test binary that every user can run.
func strangerExe(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start processes of other users")
	}
	dir, err := os.MkdirTemp("/tmp", "stranger")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	own, err := os.Executable()
	require.NoError(t, err)
	b, err := os.ReadFile(own)
	require.NoError(t, err)
	exe := filepath.Join(dir, "exe")
	require.NoError(t, os.WriteFile(exe, b, 0o755))
	for _, path := range []string{dir, exe} { // whatever the umask is
		require.NoError(t, os.Chmod(path, 0o755))
	}
	return exe
}

// startStranger starts a process of another user.
func startStranger(t *testing.T, exe string, uid int, options ...peerOption) *peer {
	t.Helper()
	p := startPeer(t, "stranger", nil, append(options, asUser(exe, uid))...)
	require.Equal(t, attempt{}, p.try(fmt.Sprintf("uid %d", uid)))
	return p
}

// holding has a process hold files, from descriptor 3 on.
func holding(t *testing.T, paths []string) peerOption {
	var files []*os.File
	for _, path := range paths {
		f, err := os.OpenFile(path, unix.O_PATH, 0)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return func(c *exec.Cmd) { c.ExtraFiles = files }
}

// A process of another user that names the same fabric gets one of its own. It can
// neither read ours nor attach to one of its processes, even if it knows the names.
func TestStrangerCannotAttach(t *testing.T) {
	name := newFabric(t)
	exe := strangerExe(t)
	server, address := startServer(t)
	own := dialSDP(t, address)
	before := server.usage()
	stranger := startStranger(t, exe, nobody)
	base := fabricBase(nobody)
	defer os.Remove(base) // removed only if it is empty
	defer os.RemoveAll(filepath.Join(base, name))

	// It uses the names that everybody uses, and has the fabric to itself.
	require.Equal(t, attempt{}, stranger.try("open"))
	a := stranger.try("dial " + address)
	require.True(t, a.Refused, "%+v", a)

	// It uses our directory.
	dir := filepath.Join(fabricBase(os.Geteuid()), name)
	stranger.try("list " + dir).denied(t)
	stranger.try("list " + filepath.Dir(dir)).denied(t)

	// It uses the sockets, whose names it could not know.
	onlyClaims(t, dir)
	all := sockets(t, dir)
	require.Len(t, all, 2) // of the server and this process
	for _, socket := range all {
		require.NotContains(t, unixSockets(t), filepath.Base(socket))
		stranger.try("cable " + socket).denied(t)
		stranger.try("read " + socket).denied(t)
	}
	// One that holds them needs no directory, and they have lost their modes: a connection is
	// accepted and closed without a file or a byte.
	holder := startStranger(t, exe, nobody, holding(t, all))
	held := func(i int) string { return fmt.Sprintf("/proc/self/fd/%d", 3+i) }
	for i, socket := range all {
		require.NoError(t, os.Chmod(socket, 0o777))
		for range 3 {
			a = holder.try("cable " + held(i))
			require.NotEmpty(t, a.Error, "the stranger is attached")
			require.Zero(t, a.Bytes)
			a = holder.try("read " + held(i))
			require.Zero(t, a.Bytes, "%+v", a)
		}
		require.NoError(t, os.Chmod(socket, 0o600))
	}
	holder.end()
	stranger.end()

	// The server is not affected, and serves its own user.
	require.NoError(t, (&flow{c: own, seed: 1, n: 1 << 20}).dialling())
	require.NoError(t, own.Close())
	after := server.usage()
	require.EqualValues(t, 1, after.Conns)
	require.LessOrEqual(t, after.Goroutines, before.Goroutines)
	require.LessOrEqual(t, after.Descriptors, before.Descriptors)
	server.in.Close()
	server.wait()
	require.Equal(t, 0, server.cmd.ProcessState.ExitCode())
	require.Contains(t, server.stderr.String(), "the peer is uid 65534, and this process is uid 0")
}

// unixSockets returns the list of the Unix sockets of this machine.
func unixSockets(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	require.NoError(t, err)
	return string(b)
}

// A link to one of our directories, in the place where a stranger's own would be,
// does not help it.
func TestStrangerCannotLinkToAFabric(t *testing.T) {
	name := newFabric(t)
	exe := strangerExe(t)
	_, address := startServer(t)
	uid := someUID()
	base := fmt.Sprintf("/tmp/ntbnet-%d", uid)
	defer os.RemoveAll(base)
	stranger := startStranger(t, exe, uid)
	ours := fabricBase(os.Geteuid())

	require.Equal(t, attempt{}, stranger.try("symlink "+ours+" "+base))
	for _, attack := range []string{"open", "dial " + address} {
		a := stranger.try(attack)
		a.denied(t)
		require.Contains(t, a.Error, base)
		require.Contains(t, a.Error, "symbolic link")
	}
	require.Equal(t, attempt{}, stranger.try("remove "+base))

	require.Equal(t, attempt{}, stranger.try("mkdir "+base))
	require.Equal(t, attempt{}, stranger.try("symlink "+filepath.Join(ours, name)+" "+filepath.Join(base, name)))
	for _, attack := range []string{"open", "dial " + address} {
		a := stranger.try(attack)
		a.denied(t)
		require.Contains(t, a.Error, filepath.Join(base, name))
	}
	stranger.end()
}

// someUID returns a user without processes here, and different from that of another
// run of these tests.
func someUID() int { return 20_000 + os.Getpid()%40_000 }

// A user that makes the directory of another user first gets no process of that
// user into it.
func TestSquattedDirectoryIsRefused(t *testing.T) {
	name := newFabric(t)
	require.NoError(t, func() error { // so that there is a directory to read
		f, err := sdp.Open("")
		if err != nil {
			return err
		}
		return f.Close()
	}())
	exe := strangerExe(t)
	uid := someUID()
	base := fmt.Sprintf("/tmp/ntbnet-%d", uid)
	defer os.RemoveAll(base)
	squatter := startStranger(t, exe, nobody)
	victim := startStranger(t, exe, uid)
	theirs, own := filepath.Join("/tmp", "squatter-"+name), filepath.Join("/tmp", "victim-"+name)
	defer os.RemoveAll(theirs)
	defer os.RemoveAll(own)
	require.Equal(t, attempt{}, squatter.try("mkdir "+theirs))
	require.Equal(t, attempt{}, victim.try("mkdir "+own))

	for _, squat := range []string{"mkdir " + base, "symlink " + theirs + " " + base, "symlink " + own + " " + base} {
		require.Equal(t, attempt{}, squatter.try(squat))
		for _, use := range []string{"open", "dial localhost:1"} {
			a := victim.try(use)
			a.denied(t)
			require.Contains(t, a.Error, base)
			require.Contains(t, a.Error, fmt.Sprintf("uid %d", nobody))
		}
		require.Equal(t, attempt{}, squatter.try("remove "+base))
	}
	require.Empty(t, dirNames(t, own), "the victim was led to another place")
	require.Equal(t, attempt{}, victim.try("open"), "it is free again")
	squatter.end()
	victim.end()
}

// playTurncoat joins the fabric, becomes another user, and dials.
func playTurncoat(p *self) error {
	f, err := sdp.Open("")
	if err != nil {
		return err
	}
	if err := syscall.Setuid(nobody); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := f.DialContext(ctx, "sdp", p.args[0])
	if err == nil {
		c.Close()
	}
	b, err := json.Marshal(newAttempt(err, 0))
	if err != nil {
		return err
	}
	p.printf("%s", b)
	p.stay()
	// The check for what is left is impossible here: /proc/self belongs to root.
	os.Exit(0)
	return nil
}

// A process has become another user by the time that it dials. Both sides refuse
// the connection, with an error that says why, though the process has the directory
// open.
func TestProcessThatChangesItsUserIsRefused(t *testing.T) {
	newFabric(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start processes of other users")
	}
	server, address := startServer(t)
	turncoat := startPeer(t, "turncoat", []string{address})
	var a attempt
	require.NoError(t, json.Unmarshal([]byte(turncoat.readLine()), &a))
	a.denied(t)
	require.Contains(t, a.Error, "uid 0")
	require.Contains(t, a.Error, fmt.Sprintf("uid %d", nobody))
	turncoat.end()
	require.Zero(t, server.usage().Conns)
	server.end()
}

// A process whose uid stands for other users too joins no fabric, and does not
// listen or dial. The error says why.
func TestProcessThatOthersLookLikeJoinsNoFabric(t *testing.T) {
	newFabric(t)
	server, address := startServer(t)
	namespace := func(cmd *exec.Cmd) { // a namespace in which no user has a number
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL}
	}
	trial := &exec.Cmd{}
	namespace(trial)
	forbidden(t, trial.SysProcAttr)
	p := startPeer(t, "stranger", nil, namespace)
	require.Equal(t, attempt{}, p.try(fmt.Sprintf("uid %d", nobody)))
	for _, call := range []string{"open", "listen localhost:0", "dial " + address} {
		a := p.try(call)
		a.denied(t)
		require.Contains(t, a.Error, fmt.Sprintf("uid %d", nobody))
		require.Contains(t, a.Error, "user namespace")
	}
	p.end()
	require.Zero(t, server.usage().Conns)
	server.end()
}
