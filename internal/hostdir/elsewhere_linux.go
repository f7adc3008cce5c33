package hostdir

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Stopped reports whether a process is stopped by a signal or a debugger, as the kernel says. pid is 0 for one of
// another pid namespace, of which it says nothing.
func Stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := bytes.LastIndexByte(text, ')') // the name before may have any bytes
	return pid > 0 && err == nil && i >= 0 && len(text) > i+2 && (text[i+2] == 'T' || text[i+2] == 't')
}

// Files of any host and version, in directories that can be printed.
var (
	anyCable  = regexp.MustCompile(`(\d+) \S+/(?:node\d+-)?` + temporaryPrefix + `\d+-[0-9a-f]{32}\n`) // a line of /proc/net/unix
	anyClaims = regexp.MustCompile(`^\PC*/(node\d+-)?` + claimName + `\d+$`)
)

// Elsewhere returns the uses of directories of fabrics by processes, but this one, of this machine, where this user may
// look at their open files. It looks at one process at least, from the highest PID below a number on, until a time. rest
// is the PID where it ended, or 0 after the last process. If it has looked at all, from 0 on, the last use counts the
// others of this network namespace.
func Elsewhere(below int, until time.Time) (uses []Use, rest int) {
	pids, users := map[string][]int{}, map[int]bool{}
	var sockets map[string]bool
	if below == 0 {
		below, sockets = math.MaxInt, cableSockets()
	}
	for _, pid := range processes(below) {
		files := fmt.Sprintf("/proc/%d/fd", pid)
		users[ownerOf(files)] = true
		for _, fd := range namesIn(files) {
			path, _ := os.Readlink(filepath.Join(files, fd))
			delete(sockets, path)
			dir := filepath.Dir(path)
			if had := pids[dir]; pid != os.Getpid() && anyClaims.MatchString(path) && (len(had) == 0 || had[len(had)-1] != pid) {
				pids[dir] = append(had, pid)
			}
		}
		if time.Now().After(until) {
			sockets, rest = nil, pid // nobody knows whose the other sockets are
			break
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(pids)) {
		some := fmt.Sprint(pids[dir][:min(len(pids[dir]), MostUses)])
		uses = append(uses, Use{dir, fmt.Sprintf("pid %s in %s", strings.Trim(some, "[]"), named(dir))})
	}
	uses = uses[:min(len(uses), MostUses)]
	if len(sockets) > 0 {
		now := cableSockets() // a socket that has been closed since is not counted
		maps.DeleteFunc(sockets, func(name string, _ bool) bool { return !now[name] })
	}
	if len(sockets) > 0 {
		uses = append(uses, Use{"", fmt.Sprintf("%d that this user may not look at%s", len(sockets), perhaps(users))})
	}
	return uses, rest
}

// processes returns the PIDs below a number, the highest first.
func processes(below int) (pids []int) {
	for _, name := range namesIn("/proc") {
		if pid, err := strconv.Atoi(name); err == nil && pid < below {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	slices.Reverse(pids)
	return pids
}

// named returns the fabric of a directory as this user would name it, or else the directory, and whose that is.
func named(dir string) string {
	base, name := filepath.Split(dir)
	switch uid := ownerOf(dir); {
	case slices.Contains(Bases(), filepath.Clean(base)) && !strings.Contains(name, "@"):
		return "shm:" + name
	case uid < 0: // of another mount namespace
		return dir + " (not seen from here)"
	case uid != os.Geteuid():
		return dir + " of " + userAndUID(uid)
	}
	return dir
}

// cableSockets returns the sockets of this network namespace that listen for cables, by what /proc/PID/fd calls them.
func cableSockets() map[string]bool {
	sockets := map[string]bool{}
	text, _ := os.ReadFile("/proc/net/unix")
	for _, m := range anyCable.FindAllSubmatch(text, -1) {
		sockets[fmt.Sprintf("socket:[%s]", m[1])] = true
	}
	return sockets
}

// perhaps says where other users, who have processes, may have fabrics.
func perhaps(users map[int]bool) string {
	var dirs []string
	for _, uid := range slices.Sorted(maps.Keys(users)) {
		for _, dir := range []string{fmt.Sprintf("/run/user/%d", uid), fmt.Sprintf("/tmp/ntbnet-%d", uid)} {
			if uid >= 0 && uid != os.Geteuid() && ownerOf(dir) == uid && len(dirs) < MostUses {
				dirs = append(dirs, dir+" of "+userAndUID(uid))
			}
		}
	}
	if len(dirs) == 0 {
		return ""
	}
	return ", perhaps in " + strings.Join(dirs, " or ")
}

// ownerOf returns the owner of a directory, or -1.
func ownerOf(dir string) int {
	info, err := os.Lstat(dir)
	if err != nil {
		return -1
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
