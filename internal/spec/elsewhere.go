package spec

import (
	"errors"
	"fmt"
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
	until time.Time
	uses  []hostdir.Use
}

var lastPlaces atomic.Pointer[places]

// Elsewhere says where processes of this machine are, but in this fabric, as far as this user may know: "; " and
// more, or "". It looks once a second, for that long at most.
func (m *Meeting) Elsewhere(limit time.Duration) string {
	if m.InProcess() {
		return ""
	}
	last, now := lastPlaces.Load(), time.Now()
	if last == nil || now.After(last.until) {
		last = &places{now.Add(time.Second), hostdir.Elsewhere(now.Add(limit))}
		lastPlaces.Store(last)
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
