package hostdir

import (
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
)

// Which directories are accepted, and what is said of others.
func TestRulesOfDirectories(t *testing.T) {
	const dir, file, link = unix.S_IFDIR, unix.S_IFREG, unix.S_IFLNK
	const me, other, shop, another = 4001, 4002, 4100, 4200
	for _, tt := range []struct {
		name     string
		mode     uint32
		uid, gid uint32
		change   func(*rules)
		want     int    // group
		text     string // of the error; "" for none
	}{
		{"private", dir | 0o700, me, another, nil, -1, ""},
		{"private, setgid from its parent", dir | 0o2700, me, another, nil, -1, ""},
		{"of root for the group", dir | 0o3770, 0, shop, nil, shop, ""},
		{"mine for the group", dir | 0o3770, me, shop, nil, shop, ""},
		{"mine for a group that I am not in", dir | 0o3770, me, another, nil, another, ""},
		{"of one who is named", dir | 0o3770, other, shop, func(r *rules) { r.owners = append(r.owners, other) }, shop, ""},
		{"root is in every group", dir | 0o3770, 0, another, func(r *rules) { r.user = 0 }, another, ""},
		{"the group that was asked for", dir | 0o3770, 0, shop, func(r *rules) { r.gid = shop }, shop, ""},

		{"of another", dir | 0o3770, other, shop, nil, 0, "belongs to uid 4002, whom this process is not told to trust: chown root /d, or say ?owner=4002"},
		{"another group", dir | 0o3770, 0, another, nil, 0, "belongs to group 4200, of which 4001 is not a member: usermod -a -G 4200 4001"},
		{"not the group that was asked for", dir | 0o3770, 0, shop, func(r *rules) { r.gid = another }, 0, "if nothing else uses it, chgrp 4200 /d && chmod 3770 /d; else name another directory"},
		{"private, but for a group", dir | 0o700, me, shop, func(r *rules) { r.gid = shop }, 0, "chmod 3770 /d"},
		{"of another alone", dir | 0o700, other, shop, nil, 0, "belongs to uid 4002 alone, and this process is uid 4001: use another directory, for both users one of a group (install -d -m 3770 -o root -g GROUP DIRECTORY)"},
		{"open to all", dir | 0o777, 0, shop, nil, 0, "has mode 0777, want 3770 for a group, or 0700 and owner 4001: if nothing else uses it, chgrp GROUP /d && chmod 3770 /d, or chown 4001 /d && chmod 700 /d; else name another directory"},
		{"open to all, sticky", dir | 0o1777, 0, shop, nil, 0, "has mode 1777"},
		{"readable by others", dir | 0o3774, 0, shop, nil, 0, "has mode 3774"},
		{"not sticky", dir | 0o2770, 0, shop, nil, 0, "has mode 2770"},
		{"not setgid", dir | 0o1770, 0, shop, nil, 0, "has mode 1770"},
		{"setuid too", dir | 0o7770, 0, shop, nil, 0, "has mode 7770"},
		{"mine, for reading by the group", dir | 0o750, me, shop, nil, 0, "has mode 0750"},
		{"a file", file | 0o700, me, shop, nil, 0, "is not a directory: name one, which mkdir -m 700 DIRECTORY makes, or install -d -m 3770 -g GROUP DIRECTORY for a group"},
		{"a link", link | 0o777, me, shop, nil, 0, "is a symbolic link"},
		{"of one without a number", dir | 0o3770, other, shop, func(r *rules) { r.owners, r.strangers.uid = append(r.owners, other), other }, 0, "not told to trust"},
		{"a group without a number", dir | 0o3770, 0, shop, func(r *rules) { r.strangers.gid = shop }, 0, "without a number in this user namespace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &rules{user: me, groups: []int{shop}, gid: -1, owners: []int{0, me}}
			r.strangers.uid, r.strangers.gid = -1, -1
			if tt.change != nil {
				tt.change(r)
			}
			gid, err := r.check(&unix.Stat_t{Mode: tt.mode, Uid: tt.uid, Gid: tt.gid}, "/d")
			if tt.text == "" {
				require.NoError(t, err)
				require.Equal(t, tt.want, gid)
				return
			}
			want := syscall.EPERM // there is something to mend in the directory
			if strings.Contains(tt.text, " is not a member") || strings.Contains(tt.text, " alone, and this process is ") {
				want = syscall.EACCES // the directory is for others
			}
			require.ErrorIs(t, err, want)
			require.ErrorContains(t, err, tt.text)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestWhoBelongsToAPlace(t *testing.T) {
	const me, shop, owner = 4001, 4100, 4003
	private, shared := &openPlace{gid: -1, owner: me}, &openPlace{gid: shop, owner: owner}
	for _, tt := range []struct {
		name            string
		peer            Peer
		private, shared bool
	}{
		{"this user", Peer{UID: me, GID: 1}, true, true},
		{"root", Peer{UID: 0, GID: 0}, false, true},
		{"the owner", Peer{UID: owner, GID: 1}, false, true},
		{"by its first group", Peer{UID: 4009, GID: shop}, false, true},
		{"by another group", Peer{UID: 4009, GID: 1, Groups: []int{7, shop}}, false, true},
		{"a stranger", Peer{UID: 4009, GID: 1, Groups: []int{7, shop + 1}}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for p, want := range map[*openPlace]bool{private: tt.private, shared: tt.shared} {
				err := p.admit(tt.peer, me)
				if want {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, fs.ErrPermission)
				require.ErrorContains(t, err, "uid "+strconv.Itoa(tt.peer.UID))
			}
		})
	}
	require.ErrorContains(t, shared.admit(Peer{UID: 4009}, me), "gid 4100")
}

func TestADirectoryByItsPath(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), strings.Repeat("long", 50), strings.Repeat("longer", 40), "fabric")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	_, err := Open(At(path, 0, ""), true)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "mkdir -m 700 "+path)
	require.ErrorContains(t, err, "install -d -m 3770 -g GROUP "+path)
	require.NoError(t, os.Mkdir(path, 0o700))
	// Two hosts share it.
	var numbers [3]*Dir
	for host := range numbers {
		d, err := Open(At(path, host, ""), true)
		require.NoError(t, err)
		defer d.Close()
		n, err := d.ClaimProcess()
		require.NoError(t, err)
		require.Equal(t, 1, n, "host %d", host)
		l, err := d.Listen(n)
		require.NoError(t, err)
		defer l.Close()
		go func() {
			if c, err := d.Accept(l); err == nil {
				c.Write([]byte{byte(host)})
				c.Close()
			}
		}()
		numbers[host] = d
	}
	for host, d := range numbers {
		c, err := d.Connect(t.Context(), 1, nil)
		require.NoError(t, err)
		var b [1]byte
		_, err = c.Read(b[:])
		require.NoError(t, err)
		require.EqualValues(t, host, b[0])
		require.NoError(t, c.Close())
	}
	for _, d := range numbers {
		require.NoError(t, d.Close())
	}
	names, err := os.ReadDir(path)
	require.NoError(t, err)
	require.Len(t, names, 3, "%v", names) // the claim files, empty
}

func TestTheDirectoryIsTheOneThatWasOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fabric")
	require.NoError(t, os.Mkdir(path, 0o700))
	d, err := Open(At(path, 0, ""), true)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, os.Rename(path, path+"-away"))
	require.NoError(t, os.Mkdir(path, 0o700))
	n, err := d.ClaimProcess()
	require.NoError(t, err)
	l, err := d.Listen(n)
	require.NoError(t, err)
	defer l.Close()
	c, err := d.Connect(t.Context(), n, nil)
	require.NoError(t, err)
	c.Close()
	names, err := os.ReadDir(path)
	require.NoError(t, err)
	require.Empty(t, names)
}

// The path of a socket would be too long, were it not by the open directory.
func TestADirectoryMayHaveALongPath(t *testing.T) {
	leak.Check(t)
	base := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	d, err := Open(In(base, "default"), true)
	require.NoError(t, err)
	defer d.Close()
	n, err := d.ClaimProcess()
	require.NoError(t, err)
	l, err := d.Listen(n)
	require.NoError(t, err)
	defer l.Close()
	c, err := d.Connect(t.Context(), n, nil)
	require.NoError(t, err)
	c.Close()
}

// A process of another version has claimed something in a file of another name.
func TestProcessesOfAnotherVersionAreRefused(t *testing.T) {
	for name, v := range map[string]string{"an earlier one": "1", "a later one": "7"} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			base := newBase(t)
			place, err := In(base, "default").open(true)
			require.NoError(t, err)
			defer place.close()
			fd, err := place.openFile("claims-v"+v, true)
			require.NoError(t, err)
			require.NoError(t, lockBytes(fd, unix.F_WRLCK, 1, 1))
			_, err = Open(In(base, "default"), true)
			require.ErrorContains(t, err, "version "+v+" of the directory")
			require.ErrorContains(t, err, "this program has version 2")
			require.NoError(t, unix.Close(fd)) // it has ended
			d := openDir(t, base)
			require.NoError(t, d.Close())
			require.NoError(t, Remove(In(base, "default")))
			require.NoDirExists(t, d.Path())
		})
	}
}

func TestTheSocketsOfTheDeadAreRemoved(t *testing.T) {
	base := newBase(t)
	d, _ := openMember(t, base)
	var dead []*process
	for range 3 {
		p, _, _ := startHolder(t, base)
		dead = append(dead, p)
	}
	alive, number, _ := startHolder(t, base)
	for _, p := range dead {
		p.kill()
	}
	sockets := func() (all []string) {
		entries, err := os.ReadDir(d.Path())
		require.NoError(t, err)
		for _, e := range entries {
			if e.Type() == fs.ModeSocket {
				all = append(all, e.Name())
			}
		}
		return all
	}
	require.Len(t, sockets(), 4)
	// A socket that was not renamed yet, of a process that was killed then.
	require.NoError(t, unix.Mknod(filepath.Join(d.Path(), temporaryPrefix+"9-"+newID()), unix.S_IFSOCK|0o600, 0))
	_, n := openMember(t, base)
	require.Equal(t, 2, n)
	left := sockets()
	require.Len(t, left, 1)
	require.Contains(t, left[0], cablePrefix+strconv.Itoa(number)+"-")
	c, err := d.Connect(t.Context(), number, nil)
	require.NoError(t, err)
	c.Close()
	alive.kill()
}

// A socket that another user's process has left cannot be removed, and is in nobody's way.
func TestADeadSocketBesideALivingOne(t *testing.T) {
	d, own := openMember(t, newBase(t))
	l, err := d.Listen(own)
	require.NoError(t, err)
	defer l.Close()
	for range 5 {
		require.NoError(t, unix.Mknod(filepath.Join(d.Path(), cablePrefix+strconv.Itoa(own)+"-"+newID()), unix.S_IFSOCK|0o600, 0))
	}
	c, err := d.Connect(t.Context(), own, nil)
	require.NoError(t, err)
	c.Close()
}

// shared is a directory of a group, which the test's user owns.
func shared(t *testing.T, gid int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start processes of other users")
	}
	dir, err := os.MkdirTemp("/tmp", "fabric-test-shared-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "shop")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.Chown(path, 0, gid))
	require.NoError(t, unix.Chmod(path, groupMode))
	return path
}

func as(uid int, groups ...uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: groups}}
}

// Numbers that no user and no group here has.
const (
	userA, userB, userC = 40_001, 40_002, 40_003
	shopGID             = 40_100
)

func TestTwoUsersOfAGroupMeet(t *testing.T) {
	path := shared(t, shopGID)
	exe, _ := asNobody(t)
	old := unix.Umask(0o077) // whatever the umask is
	defer unix.Umask(old)
	a := start(t, exe, "member", path, as(userA, shopGID))
	require.Equal(t, "1", a.line(t))
	require.Equal(t, `got "hello", <nil>`, start(t, exe, "ask", path, as(userB, 7, shopGID)).line(t))
	require.Equal(t, `got "hello", <nil>`, start(t, exe, "ask", path, nil).line(t), "root, who owns it")
	b := start(t, exe, "member", path, as(userB, shopGID))
	require.Equal(t, "2", b.line(t))

	for _, role := range []string{"ask", "member"} {
		got := start(t, exe, role, path, as(userC, 7)).line(t)
		require.Contains(t, got, "belongs to group 40100, of which 40003 is not a member: usermod -a -G 40100 40003")
	}

	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o660), info.Mode().Perm(), e.Name())
		require.EqualValues(t, shopGID, info.Sys().(*syscall.Stat_t).Gid, e.Name())
	}

	// B gets the number of A, and cannot remove the socket that A has left.
	a.kill()
	next := start(t, exe, "member", path, as(userB, shopGID))
	require.Equal(t, "1", next.line(t))
	entries, err = os.ReadDir(path)
	require.NoError(t, err)
	require.Len(t, entries, 4)
	require.Equal(t, `got "hello", <nil>`, start(t, exe, "ask", path, as(userA, shopGID)).line(t))
	// A removes it when it comes again.
	again := start(t, exe, "member", path, as(userA, shopGID))
	require.Equal(t, "3", again.line(t))
	for _, p := range []*process{b, next, again} {
		p.kill()
	}
	d, err := Open(At(path, 0, ""), false)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.ClaimProcess() // root may remove all
	require.NoError(t, err)
	entries, err = os.ReadDir(path)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// A member has put a link in the place of a socket. It leads to a socket that the member may not
// reach, and root may.
func TestNoLinkLeadsToAnotherSocket(t *testing.T) {
	path := shared(t, shopGID)
	exe, _ := asNobody(t)
	secret := filepath.Join(filepath.Dir(exe), "secret")
	l, err := net.Listen("unix", secret)
	require.NoError(t, err)
	defer l.Close()
	reached := make(chan struct{})
	go func() {
		if _, err := l.Accept(); err == nil {
			close(reached)
		}
	}()
	d, err := Open(At(path, 0, ""), true)
	require.NoError(t, err)
	defer d.Close()
	n, err := d.ClaimProcess()
	require.NoError(t, err)
	link := filepath.Join(path, cablePrefix+strconv.Itoa(n)+"-"+newID())
	require.NoError(t, os.Symlink(secret, link))
	_, err = d.Connect(t.Context(), n, nil)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Link(secret, link)) // of a mode and group that no member's has
	_, err = d.Connect(t.Context(), n, nil)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	select {
	case <-reached:
		t.Error("the socket was reached")
	default:
	}
	// As it would be with a socket of the fabric.
	require.NoError(t, os.Chown(secret, 0, shopGID))
	require.NoError(t, os.Chmod(secret, 0o660))
	c, err := d.Connect(t.Context(), n, nil)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	<-reached
}

// A member has given the name of the claim file to a file of another kind.
func TestFilesThatNoMemberMakesAreRefused(t *testing.T) {
	path := shared(t, shopGID)
	for name, plant := range map[string]func(string) error{
		"a link":          func(file string) error { return os.Symlink("/etc/passwd", file) },
		"a fifo":          func(file string) error { return unix.Mkfifo(file, 0o660) },
		"another mode":    func(file string) error { return os.WriteFile(file, nil, 0o666) },
		"another's group": func(file string) error { return os.WriteFile(file, nil, 0o660) },
	} {
		file := filepath.Join(path, "claims-v2")
		require.NoError(t, plant(file))
		if name == "another's group" {
			require.NoError(t, os.Chown(file, 0, 7))
			require.NoError(t, os.Chmod(file, 0o660))
		}
		_, err := Open(At(path, 0, ""), true)
		require.ErrorIs(t, err, syscall.EPERM, name)
		require.ErrorContains(t, err, file, name)
		require.NoError(t, os.Remove(file))
	}
}

func TestADirectoryWithAnAccessControlListIsRefused(t *testing.T) {
	path := shared(t, shopGID)
	// Version 2; owner, user 40003, group, mask: rwx; others: nothing.
	list := []byte{2, 0, 0, 0,
		1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 0x43, 0x9c, 0, 0, 4, 0, 7, 0, 255, 255, 255, 255,
		16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	if err := unix.Setxattr(path, "system.posix_acl_access", list, 0); err != nil {
		fmt.Printf("WARNING: %s is skipped: no access control lists on this file system: %v\n", t.Name(), err)
		t.Skip("no access control lists: ", err)
	}
	_, err := Open(At(path, 0, ""), true)
	require.ErrorIs(t, err, syscall.EPERM)
	require.ErrorContains(t, err, "setfacl -b "+path)
}

// In a volume where everybody may write, the first process makes the directory.
func TestADirectoryIsMadeForAGroup(t *testing.T) {
	volume := filepath.Dir(shared(t, shopGID))
	exe, _ := asNobody(t)
	require.NoError(t, os.Chmod(volume, 0o777))
	path := filepath.Join(volume, "made")
	arg := path + " 40100"
	got := start(t, exe, "make", arg, as(userC, 7)).line(t)
	require.Contains(t, got, "make directory "+path+" for group 40100")
	require.Contains(t, got, syscall.EPERM.Error())
	require.Equal(t, "made", start(t, exe, "make", arg, as(userA, shopGID)).line(t))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, groupMode, info.Sys().(*syscall.Stat_t).Mode&0o7777)
	require.EqualValues(t, shopGID, info.Sys().(*syscall.Stat_t).Gid)
	// Who made it is trusted by those who say so.
	require.Contains(t, start(t, exe, "make", arg, as(userB, shopGID)).line(t), "or say ?owner=40001")
	require.Equal(t, "made", start(t, exe, "make", arg+" 40002 40001", as(userB, shopGID)).line(t))
	// Nothing else is left in the volume.
	entries, err := os.ReadDir(volume)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

func TestWhatAStrangerCanDoIsLoggedOnce(t *testing.T) {
	before, written := slog.Default(), log.Writer()
	var lines strings.Builder
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	defer log.SetOutput(written) // which SetDefault has changed too
	defer slog.SetDefault(before)
	volume := t.TempDir()
	for mode, want := range map[uint32]string{
		0o777:  "by renaming it, or by making it first, but cannot enter it",
		0o1777: "hide the fabric, by making it first, but cannot enter it",
		0o755:  "",
	} {
		require.NoError(t, unix.Chmod(volume, mode))
		path := filepath.Join(volume, "made")
		lines.Reset()
		for range 2 {
			d, err := Open(At(path, 0, strconv.Itoa(os.Getegid())), true)
			require.NoError(t, err)
			require.NoError(t, d.Close())
		}
		require.Equal(t, min(1, len(want)), strings.Count(lines.String(), "\n"), lines.String())
		assert.Contains(t, lines.String(), want)
		require.NoError(t, os.RemoveAll(path))
	}
}
