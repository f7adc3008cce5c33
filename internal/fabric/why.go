package fabric

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
)

// whyTime is how long it may take to find out why a dial has failed.
const whyTime = 10 * time.Millisecond

// Why returns the error of a dial to a process of this host, with what the kernel says of that process: that it is
// stopped. It is for dials that took too long.
func (f *Fabric) Why(id link.ID, err error) error {
	if f.net.spec.InProcess() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), whyTime)
	defer cancel()
	c, e := f.net.registry.connectTo(ctx, id.Process(), nil) // which a stopped process need not accept
	if e != nil {
		return err
	}
	defer c.Close()
	who, e := c.peer()
	if e != nil {
		return err
	}
	return stopped(who.PID, err)
}

// stopped returns the error of a question to a process, which says so if that is stopped.
func stopped(pid int, err error) error {
	if !hostdir.Stopped(pid) {
		return err
	}
	return fmt.Errorf("pid %d is stopped: kill -CONT %[1]d, or end it: %[2]w", pid, err)
}

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
func (s *Spec) Elsewhere(limit time.Duration) string {
	if s.InProcess() {
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
		if u.Path != s.Place().Path() {
			text += before + u.Text
			before = ", "
		}
	}
	return text
}
