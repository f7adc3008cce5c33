package hostdir

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/inetdiag"
)

// Stopped reports whether a process is stopped by a signal or a debugger, as the kernel says. pid is 0 for one of
// another pid namespace, of which it says nothing.
func Stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := bytes.LastIndexByte(text, ')') // the name before may have any bytes
	return pid > 0 && err == nil && i >= 0 && len(text) > i+2 && (text[i+2] == 'T' || text[i+2] == 't')
}

// Elsewhere returns the processes, but this one, that use directories of fabrics: their pids by directory, where this
// user may look at their open files, and how many each other user has in this network namespace. It looks until a
// time, and then returns what it has found.
func Elsewhere(until time.Time) (pids map[string][]int, users map[int]int) {
	pids, users = map[string][]int{}, map[int]int{}
	self := os.Geteuid()
	if self != 0 { // root sees the files of all
		_ = inetdiag.UnixListeners(func(name string, uid int) { // without it they are not known
			if (Place{}).cableOf(withoutHost(filepath.Base(name))) != 0 && uid != self {
				users[uid]++
			}
		})
	}
	for _, name := range namesIn("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() || time.Now().After(until) {
			continue
		}
		files := filepath.Join("/proc", name, "fd")
		for _, fd := range namesIn(files) {
			path, err := os.Readlink(filepath.Join(files, fd))
			if dir, file := filepath.Split(path); err == nil && (Place{}).claimVersion(withoutHost(file)) != 0 {
				pids[filepath.Clean(dir)] = append(pids[filepath.Clean(dir)], pid)
				break
			}
		}
	}
	return pids, users
}

// withoutHost returns the name of a file without what says which host it is of.
func withoutHost(name string) string {
	rest, _ := strings.CutPrefix(name, "node")
	if digits, rest, ok := strings.Cut(rest, "-"); ok && strings.Trim(digits, "0123456789") == "" {
		return rest
	}
	return name
}
