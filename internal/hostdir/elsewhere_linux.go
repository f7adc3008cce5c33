package hostdir

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// Stopped reports whether a process is stopped by a signal or a debugger, as the kernel says. pid is 0 for one of
// another pid namespace, of which it says nothing.
func Stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := bytes.LastIndexByte(text, ')') // the name before may have any bytes
	return pid > 0 && err == nil && i >= 0 && len(text) > i+2 && (text[i+2] == 'T' || text[i+2] == 't')
}

// Files of any host and version.
var (
	anyCable  = regexp.MustCompile(`(\d+) \S+/(?:node\d+-)?` + temporaryPrefix + `\d+-[0-9a-f]{32}\n`) // a line of /proc/net/unix
	anyClaims = regexp.MustCompile(`/(node\d+-)?` + claimName + `\d+$`)
)

// Elsewhere returns the processes, but this one, that use directories of fabrics: their pids by directory, where this
// user may look at their open files, and how many others there are in this network namespace. It looks until a time,
// and then returns what it has found.
func Elsewhere(until time.Time) (pids map[string][]int, others int) {
	pids = map[string][]int{}
	sockets := map[string]bool{} // that listen for cables, by what /proc/PID/fd calls them
	text, _ := os.ReadFile("/proc/net/unix")
	for _, m := range anyCable.FindAllSubmatch(text, -1) {
		sockets[fmt.Sprintf("socket:[%s]", m[1])] = true
	}
	for _, name := range namesIn("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil || time.Now().After(until) {
			continue
		}
		files := filepath.Join("/proc", name, "fd")
		for _, fd := range namesIn(files) {
			path, _ := os.Readlink(filepath.Join(files, fd))
			delete(sockets, path)
			dir := filepath.Dir(path)
			if had := pids[dir]; pid != os.Getpid() && anyClaims.MatchString(path) && (len(had) == 0 || had[len(had)-1] != pid) {
				pids[dir] = append(had, pid)
			}
		}
	}
	return pids, len(sockets)
}
