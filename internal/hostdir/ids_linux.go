package hostdir

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// newID returns 32 random hexadecimal digits.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// lookupGroup returns the number of a group, by its name or number.
func lookupGroup(name string) (int, error) {
	if gid, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(gid), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("fabric: group %q: %w: groupadd it, or give its number: %w", name, err, syscall.EINVAL)
	}
	return strconv.Atoi(g.Gid)
}

// lookupUser returns the number of a user, by the user's name or number.
func lookupUser(name string) (int, error) {
	if uid, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(uid), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("fabric: user %q: %w: useradd the user, or give the number: %w", name, err, syscall.EINVAL)
	}
	return strconv.Atoi(u.Uid)
}

// GroupName returns a group's name, or its number if it has none here.
func GroupName(gid int) string {
	if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
		return g.Name
	}
	return strconv.Itoa(gid)
}

// UserName returns a user's name, or the number if the user has none here.
func UserName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// userAndUID returns "uid N", and the user's name if there is one here.
func userAndUID(uid int) string {
	number := strconv.Itoa(uid)
	if name := UserName(uid); name != number {
		return name + " (uid " + number + ")"
	}
	return "uid " + number
}

// warnOfVolume logs what users outside of the group can do to a directory that was made in
// a volume where everybody may write.
func warnOfVolume(volume, path string, st *unix.Stat_t) {
	how := "by renaming it, or by making it first"
	switch {
	case st.Mode&0o002 == 0:
		return
	case st.Mode&unix.S_ISVTX != 0:
		how = "by making it first"
	}
	slog.Warn("fabric: everybody may write in the volume: a stranger can hide the fabric, "+how+", but cannot enter it",
		"volume", volume, "fabric", path)
}
