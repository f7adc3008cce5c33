package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// In a user namespace the kernel shows each uid that has no number there as the
// overflow uid, mostly 65534. A process that itself has that uid sees every such
// user as its own: the owner of a directory, and the peer of a socket. It cannot
// distinguish them, and so attaches to no fabric.

// CheckUser returns an error that wraps EPERM, and is errors.ErrUnsupported, if this process
// could take another user for its own. Then Open fails with the same error.
func CheckUser() error { return checkUserAt("/proc", os.Geteuid()) }

// checkUserAt is CheckUser for a process of user euid with /proc at proc. What
// cannot be read there counts against the process.
func checkUserAt(proc string, euid int) error {
	stands, err := overflow(proc, "uid")
	if Lack(err) {
		return needsProc("fabric: whether a user stands for others too", err)
	}
	if err != nil {
		return unsupported("fabric: uid %d may stand for other users too: %w", euid, needsProc("that", err))
	}
	if stands == euid {
		return unsupported("fabric: uid %d stands for every user who has no number in this user namespace: run as another uid, one that the namespace maps: %w",
			euid, syscall.EPERM)
	}
	return nil
}

// needsProc returns the error of a process that could not read below /proc, which what is asked
// needs. Unless that was for lack of something, it wraps EPERM, and asks for /proc.
func needsProc(what string, err error) error {
	if Lack(err) {
		return fmt.Errorf("%s could not be found out: %w", what, err)
	}
	return fmt.Errorf("%s needs /proc to find out: mount it: %w: %w", what, err, syscall.EPERM)
}

// overflow returns the number as which this process sees every user, or group, that has no
// number in its user namespace. It is -1 where all have one. kind is "uid" or "gid".
func overflow(proc, kind string) (int, error) {
	table, err := os.ReadFile(filepath.Join(proc, "self", kind+"_map"))
	if errors.Is(err, fs.ErrNotExist) {
		// A kernel without user namespaces has no such file, but has others beside
		// it.
		if _, err := os.Stat(filepath.Join(proc, "self", "stat")); err == nil {
			return -1, nil
		}
	}
	if err != nil {
		return -1, err
	}
	if isIdentity(string(table)) {
		return -1, nil
	}
	text, err := os.ReadFile(filepath.Join(proc, "sys", "kernel", "overflow"+kind))
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// isIdentity reports whether a uid_map or gid_map gives everyone their own number: one range
// from 0 to 0, of all but 2³²−1, which is nobody.
func isIdentity(table string) bool {
	f := strings.Fields(table)
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}
