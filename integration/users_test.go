//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// meeting is the outcome of what one user's process asked for.
type meeting struct {
	attempt
	Address string // of a listener
	By      string // transport
	Name    string // of the server, as it says
}

// playUser does what its lines say, in the fabric of SDP_FABRIC:
//
//	listen NETWORK ADDRESS NAME  serves NAME until the process ends
//	dial NETWORK ADDRESS         asks the server there for its name
func playUser(p *self) error {
	u := &user{}
	defer u.close()
	p.printf("ready")
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		b, err := json.Marshal(u.do(words(line)))
		if err != nil {
			return err
		}
		p.printf("%s", b)
	}
}

type user struct{ servers []*labServer }

func (u *user) close() {
	for _, s := range u.servers {
		s.stop()
	}
}

func (u *user) do(w []string) (m meeting) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var err error
	switch w[0] {
	case "listen":
		var ln net.Listener
		if ln, err = (&sdp.ListenConfig{}).Listen(ctx, w[1], w[2]); err == nil {
			u.servers = append(u.servers, serveLab(ln, w[3]))
			m.Address = ln.Addr().String()
		}
	case "dial":
		var c net.Conn
		if c, err = (&sdp.Dialer{}).DialContext(ctx, w[1], w[2]); err == nil {
			defer c.Close()
			c.SetDeadline(time.Now().Add(testTimeout))
			var name []byte
			name, err = io.ReadAll(c)
			m.Name, m.By = string(name), transportOf(c)
		}
	default:
		err = fmt.Errorf("what? %q", w)
	}
	m.attempt = newAttempt(err, 0)
	return m
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
			require.Equal(t, meeting{Name: "a", By: "sdp"}, p.meets("dial %s %s", network, address))
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
	trial := exec.Command("true")
	trial.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := trial.Run(); err != nil {
		fmt.Printf("WARNING: %s is skipped: no network namespace: %v\n", t.Name(), err)
		t.Skip("no network namespace: ", err)
	}
	apart := func(c *exec.Cmd) { c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET }
	a := startUser(t, exe, "shm:"+dir, userA, inShop, apart)
	b := startUser(t, exe, "shm:"+dir, userB, inShop, apart)
	here := startUser(t, exe, "shm:"+dir, userB, inShop)
	address := a.meets("listen sdp localhost:0 a").Address
	for _, p := range []*peer{a, b, here} {
		require.Equal(t, meeting{Name: "a", By: "sdp"}, p.meets("dial sdp %s", address))
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
	for _, call := range []string{"dial sdp " + address, "listen sdp localhost:0 b", "listen tcp localhost:0 b"} {
		var m meeting
		b.askFor(call, &m)
		if call[:10] == "listen tcp" {
			continue // which is TCP where there is no fabric
		}
		m.denied(t)
		require.Contains(t, m.Error, volume+"/shop belongs to ")
		require.Contains(t, m.Error, "chgrp "+strconv.Itoa(shopGID))
	}
	squatter.end()
	b.end()
}
