package hostdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupMode is the mode of a directory that a group shares: nobody but its members may
// enter, new files belong to the group, and nobody removes those of others.
const groupMode = unix.S_ISGID | unix.S_ISVTX | 0o770

// prefix is what the names of a host's files begin with.
func (p Place) prefix() string {
	if p.host == 0 {
		return ""
	}
	return "node" + strconv.Itoa(p.host) + "-"
}

// openPlace is a directory that is open, and is as its Place wants it.
type openPlace struct {
	Place
	dir   *os.File
	late  *lateLock // nil if the flock was had at once
	owner int
	gid   int // of the group that shares the directory, or -1
}

// open opens the directory. If it does not exist and create is set, open makes it where
// that is allowed. If it is not as the Place wants it, the error says what to do.
func (p Place) open(create bool) (*openPlace, error) {
	if err := CheckUser(); err != nil {
		return nil, err
	}
	if !p.Named() {
		return p.openPath(create)
	}
	if err := checkName(p.name); err != nil {
		return nil, err
	}
	base, err := privateDir(unix.AT_FDCWD, p.base, p.base, create)
	if create && isOne(err, unix.ENOENT, unix.EROFS, unix.EACCES) {
		err = unsupported("%w: this system has no directory for the fabrics of a user: mount one there, or name one by SDP_FABRIC=shm:/PATH", err)
	}
	if err != nil {
		return nil, denied(err)
	}
	defer unix.Close(base)
	fd, err := privateDir(base, p.name, p.path, create)
	if err != nil {
		return nil, denied(err)
	}
	return &openPlace{Place: p, dir: os.NewFile(uintptr(fd), p.path), owner: os.Geteuid(), gid: -1}, nil
}

// denied is denied if the directory is of this user alone.
func (p *openPlace) denied(err error) error {
	if p.gid < 0 && p.owner == os.Geteuid() {
		return denied(err)
	}
	return err
}

// close closes the directory, and unlocks it. Names in it can no longer be used.
func (p *openPlace) close() {
	p.late.stop()
	_ = flock(p.fd(), unix.LOCK_UN) // a child that is just being started shares the open file
	p.dir.Close()
}

// fd returns the directory's descriptor, which is valid until close.
func (p *openPlace) fd() int { return int(p.dir.Fd()) }

// fileMode is the mode of all files and sockets in the directory.
func (p *openPlace) fileMode() uint32 {
	if p.gid < 0 {
		return 0o600
	}
	return 0o660
}

// names returns the names of all files.
func (p *openPlace) names() ([]string, error) {
	if _, err := p.dir.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("fabric: read directory: %w", err)
	}
	names, err := p.dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("fabric: read directory: %w", kernels(err))
	}
	return names, nil
}

// openFile opens a file that processes of the fabric share, and makes it if it does not
// exist and create is set.
func (p *openPlace) openFile(name string, create bool) (int, error) {
	flags := unix.O_RDWR | unix.O_NONBLOCK // the name may not be that of a regular file
	path := filepath.Join(p.path, name)
	fd, err := openat(p.fd(), name, flags)
	if err == unix.ENOENT && create {
		if err = p.makeFile(name); err == nil || err == unix.EEXIST {
			fd, err = openat(p.fd(), name, flags)
		}
	}
	if err == unix.ELOOP {
		return -1, fmt.Errorf("fabric: %s is a symbolic link, want a file: remove it: %w", path, syscall.EPERM)
	}
	if err != nil {
		return -1, fmt.Errorf("fabric: open %s: %w", path, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && !p.ours(&st, unix.S_IFREG) {
		err = syscall.EPERM
	}
	if err != nil {
		unix.Close(fd)
		whose := "of this user"
		if p.gid >= 0 {
			whose = fmt.Sprintf("of %s with mode 0660", GroupName(p.gid))
		}
		return -1, fmt.Errorf("fabric: %s of uid %d is not a file %s: remove it: %w", path, st.Uid, whose, err)
	}
	return fd, nil
}

// ours reports whether a file is one of a type that this package makes. In the directory of a
// group each member could have given the name to a file of another user.
func (p *openPlace) ours(st *unix.Stat_t, kind uint32) bool {
	switch {
	case st.Mode&unix.S_IFMT != kind:
		return false
	case p.gid < 0:
		return int(st.Uid) == os.Geteuid()
	}
	return int(st.Gid) == p.gid && st.Mode&0o7777 == 0o660
}

// makeFile makes an empty file. It gets its name when it has its mode, since others open it
// as soon as they find it. The error is EEXIST if it is there already.
func (p *openPlace) makeFile(name string) error {
	temporary := p.prefix() + temporaryPrefix + newID()
	fd, err := openat(p.fd(), temporary, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	defer unix.Unlinkat(p.fd(), temporary, 0)
	if err := unix.Fchmod(fd, p.fileMode()); err != nil {
		return kernels(err)
	}
	return kernels(unix.Linkat(p.fd(), temporary, p.fd(), name, 0))
}

// privateDir opens directory name in the directory at. If it does not exist and create is
// set, privateDir makes it. If it is not private to this user, privateDir returns an error.
// It checks what it has opened, so the directory cannot be replaced in between.
func privateDir(at int, name, path string, create bool) (int, error) {
	if create {
		if err := unix.Mkdirat(at, name, 0o700); err != nil && err != unix.EEXIST {
			return -1, fmt.Errorf("fabric: make directory %s: %w", path, kernels(err))
		}
	}
	fd, st, err := openDirectory(at, name)
	if st != nil && restricted(st) {
		if err == nil {
			unix.Close(fd)
		}
		if err := grantOwner(at, name); err != nil {
			return -1, fmt.Errorf("fabric: give directory %s mode 0700: %w", path, err)
		}
		fd, st, err = openDirectory(at, name)
	}
	if err == nil {
		if err = checkPrivate(st, path); err == nil {
			return fd, nil
		}
		unix.Close(fd)
		return -1, err
	}
	// The error says what is wrong with the directory rather than which call failed.
	if st != nil {
		if err := checkPrivate(st, path); err != nil {
			return -1, err
		}
	}
	return -1, fmt.Errorf("fabric: open directory %s: %w", path, err)
}

// restricted reports whether a directory of this user is closed to all others, and in part to
// this user too, as a umask leaves it.
func restricted(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && st.Mode&0o077 == 0 && st.Mode&0o700 != 0o700
}

// grantOwner gives a restricted directory mode 0700. It does nothing to others.
func grantOwner(at int, name string) error {
	fd, err := openat(at, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !restricted(&st) {
		return err
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700) // not by its name, which another file may have by now
}

// openDirectory opens a directory and reads its attributes. It follows no link at the end
// of the name. The attributes are not nil if there is something of that name, though it
// may not be a directory or not be open to this process.
func openDirectory(at int, name string) (int, *unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return -1, nil, err
		}
		return -1, &st, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, &st, nil
}

// checkPrivate refuses everything but a directory of this user that no other user
// can enter.
func checkPrivate(st *unix.Stat_t, path string) error {
	uid := os.Geteuid()
	switch {
	case int(st.Uid) != uid:
		return fmt.Errorf("fabric: %s belongs to uid %d, and this process is uid %d: have it removed, or use a fabric of your own: %w",
			path, st.Uid, uid, syscall.EPERM)
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("fabric: %s of uid %d is a symbolic link, want a directory: remove it: %w",
			path, st.Uid, syscall.EPERM)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("fabric: %s of uid %d is not a directory: remove it: %w",
			path, st.Uid, syscall.EPERM)
	case st.Mode&0o777 != 0o700:
		return fmt.Errorf("fabric: %s of uid %d has mode %#o, want 0700: chmod 700 it if only you have used it: %w",
			path, st.Uid, st.Mode&0o777, syscall.EPERM)
	}
	return nil
}

// openPath opens a directory that the user named.
func (p Place) openPath(create bool) (*openPlace, error) {
	rules, err := p.rules()
	if err != nil {
		return nil, err
	}
	fd, st, err := openDirectory(unix.AT_FDCWD, p.path)
	if err == unix.ENOENT && st == nil && create && p.group != "" {
		if err = makeShared(p.path, rules.gid); err != nil {
			return nil, err
		}
		fd, st, err = openDirectory(unix.AT_FDCWD, p.path)
	}
	if st == nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("fabric: there is no directory %s: mkdir -m 700 %[1]s if only this user is to use it, install -d -m 3770 -g GROUP %[1]s for a group: %w", p.path, err)
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("fabric: a directory above %s gives %s no permission: chmod a+x it, or use another one: %w", p.path, userAndUID(rules.user), err)
		}
		return nil, fmt.Errorf("fabric: open directory %s: %w", p.path, err)
	}
	gid, wrong := rules.check(st, p.path)
	switch {
	case wrong != nil: // it says what is wrong rather than which call failed
	case err != nil:
		wrong = fmt.Errorf("fabric: open directory %s: %w", p.path, err)
	default:
		wrong = checkACL(fd, p.path, st)
	}
	if wrong != nil {
		if err == nil {
			unix.Close(fd)
		}
		return nil, wrong
	}
	return &openPlace{Place: p, dir: os.NewFile(uintptr(fd), p.path), owner: int(st.Uid), gid: gid}, nil
}

// rules are what a directory must be like that the user named.
type rules struct {
	user   int // of this process
	groups []int
	gid    int   // the directory must have it; -1 for any
	owners []int // users who may own it
	// strangers are the numbers that stand for users and groups without a number in this
	// user namespace; -1 if there are none.
	strangers struct{ uid, gid int }
}

// rules returns the rules of the place for this process.
func (p Place) rules() (r rules, err error) {
	r = rules{user: os.Geteuid(), gid: -1, owners: []int{0, os.Geteuid()}}
	if r.groups, err = os.Getgroups(); err != nil {
		return r, fmt.Errorf("fabric: read the groups of this process: %w", err)
	}
	r.groups = append(r.groups, os.Getegid())
	if r.strangers.uid, err = overflow("/proc", "uid"); err == nil {
		r.strangers.gid, err = overflow("/proc", "gid")
	}
	if err != nil {
		return r, needsProc("fabric: whether a group stands for others too", err)
	}
	if p.group != "" {
		if r.gid, err = lookupGroup(p.group); err != nil {
			return r, err
		}
	}
	for _, name := range p.owners {
		uid, err := lookupUser(name)
		if err != nil {
			return r, err
		}
		r.owners = append(r.owners, uid)
	}
	return r, nil
}

// check returns the group that shares the directory, or -1 if it is this user's alone. It
// refuses all other directories, with the commands that make them right. The error wraps EACCES
// if the directory is right for others, else EPERM.
func (r *rules) check(st *unix.Stat_t, path string) (gid int, err error) {
	uid, gid, mode := int(st.Uid), int(st.Gid), st.Mode&0o7777
	refuseBy := func(errno syscall.Errno, format string, args ...any) (int, error) {
		return -1, fmt.Errorf("fabric: %s %s: %w", path, fmt.Sprintf(format, args...), errno)
	}
	refuse := func(format string, args ...any) (int, error) { return refuseBy(syscall.EPERM, format, args...) }
	group := "GROUP"
	if r.gid >= 0 {
		group = GroupName(r.gid)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return refuse("is a symbolic link, want a directory: name the directory that it leads to")
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return refuse("is not a directory: name one, which mkdir -m 700 DIRECTORY makes, or install -d -m 3770 -g %s DIRECTORY for a group", group)
	case uid == r.user && mode&0o777 == 0o700 && r.gid < 0:
		return -1, nil
	case mode&0o777 == 0o700 && uid != r.user:
		return refuseBy(syscall.EACCES, "belongs to %s alone, and this process is %s: use another directory, for both users one of a group (install -d -m 3770 -o root -g %s DIRECTORY)", userAndUID(uid), userAndUID(r.user), group)
	case r.gid >= 0 && gid != r.gid:
		return refuse("belongs to group %s, want %s: if nothing else uses it, chgrp %[2]s %s && chmod 3770 %[3]s; else name another directory", GroupName(gid), group, path)
	case mode != groupMode:
		return refuse("has mode %04o, want 3770 for a group, or 0700 and owner %s: if nothing else uses it, chgrp %s %s && chmod 3770 %[4]s, or chown %[2]s %[4]s && chmod 700 %[4]s; else name another directory", mode, UserName(r.user), group, path)
	case uid == r.strangers.uid || !slices.Contains(r.owners, uid):
		return refuse("belongs to %s, whom this process is not told to trust: chown root %s, or say ?owner=%s", userAndUID(uid), path, UserName(uid))
	case gid == r.strangers.gid:
		return refuse("belongs to a group without a number in this user namespace: chgrp %s %s from outside", group, path)
	case r.user != 0 && uid != r.user && !slices.Contains(r.groups, gid):
		return refuseBy(syscall.EACCES, "belongs to group %s, of which %s is not a member: usermod -a -G %[1]s %[2]s, and begin a new session", GroupName(gid), UserName(r.user))
	}
	return gid, nil
}

// checkACL refuses a directory of a group that other users may enter by its access control
// list, which its mode does not show.
func checkACL(fd int, path string, st *unix.Stat_t) error {
	if st.Mode&0o070 == 0 {
		return nil
	}
	for _, list := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
		if n, err := unix.Fgetxattr(fd, list, nil); err == nil && n > 0 {
			return fmt.Errorf("fabric: %s has an access control list, want its mode alone: setfacl -b %[1]s: %w", path, syscall.EPERM)
		}
	}
	return nil
}

// makeShared makes the directory of a group. It gets its name when it has its mode. The
// error is nil if the directory is there already.
func makeShared(path string, gid int) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("fabric: make directory %s for group %s: %w", path, GroupName(gid), err)
		}
	}()
	volume, name := filepath.Split(path)
	at, st, err := openDirectory(unix.AT_FDCWD, volume+".")
	if err != nil {
		return err
	}
	defer unix.Close(at)
	temporary := "." + temporaryPrefix + newID()
	if err := unix.Mkdirat(at, temporary, 0o700); err != nil {
		return err
	}
	defer unix.Unlinkat(at, temporary, unix.AT_REMOVEDIR) // nothing is left of it under that name
	if err := grantOwner(at, temporary); err != nil {
		return err
	}
	fd, made, err := openDirectory(at, temporary)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if int(made.Uid) != os.Geteuid() {
		return fmt.Errorf("another user has replaced it: %w", syscall.EPERM)
	}
	if err := unix.Fchown(fd, -1, gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, groupMode); err != nil {
		return err
	}
	switch err := unix.Renameat2(at, temporary, at, name, unix.RENAME_NOREPLACE); err {
	case nil:
		warnOfVolume(filepath.Clean(volume), path, st)
		return nil
	case unix.EEXIST:
		return nil
	default:
		return err
	}
}
