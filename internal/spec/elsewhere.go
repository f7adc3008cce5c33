package spec

import (
	"errors"
	"fmt"
	"slices"
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
	case errors.Is(err, syscall.ENOMEM):
		return "ulimit -v unlimited (LimitAS=infinity), or smaller windows, as in SDP_FABRIC='shm:NAME?window=16777216'"
	case errors.Is(err, syscall.EFBIG):
		return "ulimit -f unlimited (LimitFSIZE=infinity)"
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
	until time.Time
	uses  []hostdir.Use
	rest  int // the PID below which the next look goes on, or 0
}

var lastPlaces atomic.Pointer[places]

// Elsewhere says where processes of this machine are, but in this fabric, as far as this user may know: "; " and
// more, or "". It looks once a second, for that long at most, and goes on where its last look ended.
func (m *Meeting) Elsewhere(limit time.Duration) string {
	if m.InProcess() {
		return ""
	}
	last, now := lastPlaces.Load(), time.Now()
	if last == nil {
		last = &places{}
	}
	if now.After(last.until) {
		next := &places{until: now.Add(time.Second)}
		next.uses, next.rest = hostdir.Elsewhere(last.rest, now.Add(limit))
		if last.rest != 0 {
			next.uses = append(slices.Clip(last.uses), next.uses...)
			next.uses = next.uses[:min(len(next.uses), hostdir.MostUses)]
		}
		lastPlaces.Store(next)
		last = next
	}
	before := "; other processes of this machine: "
	var text string
	for _, u := range last.uses {
		if u.Path != m.Place().Path() {
			text += before + u.Text
			before = ", "
		}
	}
	return text
}
