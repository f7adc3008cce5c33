package spec

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
)

// Remedy returns what to do if a process or the system is out of something, or "".
func Remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "ulimit -n 4096 (LimitNOFILE=4096)"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free room (df -h and df -i have the file systems), or name a directory of another one by SDP_FABRIC=shm:/PATH"
	}
	return ""
}

// Advise returns an error with its Remedy in front.
func Advise(err error) error {
	if r := Remedy(err); r != "" {
		return fmt.Errorf("%s: %w", r, err)
	}
	return err
}

// places is what Elsewhere has found, until a time, since programs dial again and again.
type places struct {
	until  time.Time
	pids   map[string][]int
	others int
}

var lastPlaces atomic.Pointer[places]

// maxPlaces is how many directories Elsewhere names, and processes of each.
const maxPlaces = 8

// Elsewhere says where processes of this machine are, but in this fabric, as far as this user may know: "; " and
// more, or "". It looks once a second, for that long at most.
func (s *Spec) Elsewhere(limit time.Duration) string {
	if s.InProcess() {
		return ""
	}
	last, now := lastPlaces.Load(), time.Now()
	if last == nil || now.After(last.until) {
		last = &places{until: now.Add(time.Second)}
		last.pids, last.others = hostdir.Elsewhere(now.Add(limit))
		lastPlaces.Store(last)
	}
	pids := maps.Clone(last.pids)
	var list []string
	delete(pids, s.Place().Path())
	dirs := slices.Sorted(maps.Keys(pids))
	for _, dir := range dirs[:min(len(dirs), maxPlaces)] {
		name := dir
		if base, last := filepath.Split(dir); slices.Contains(hostdir.Bases(), filepath.Clean(base)) && !strings.Contains(last, "@") {
			name = "shm:" + last
		}
		list = append(list, fmt.Sprintf("pid %s in %s", strings.Trim(fmt.Sprint(pids[dir][:min(len(pids[dir]), maxPlaces)]), "[]"), name))
	}
	if last.others > 0 {
		list = append(list, fmt.Sprintf("%d that this user may not look at", last.others))
	}
	if len(list) == 0 {
		return ""
	}
	return "; other processes of this machine: " + strings.Join(list, ", ")
}
