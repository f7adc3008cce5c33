package fabric

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbshm"
	"github.com/ntbnet/ntbnet/ring"
)

// Refusals counts processes that were refused because they do not fit.
type Refusals struct {
	Count uint64 `json:"count"`
	Last  string `json:"last,omitempty"` // reason of the last refusal
}

// refusals counts refusals. It takes no lock, since goroutines of links call it.
type refusals struct {
	count  atomic.Uint64
	last   atomic.Pointer[string]
	logged atomic.Int64           // when report has logged last, in nanoseconds since 1970
	halves atomic.Pointer[string] // why the last half of a link failed, as logged; "" if one was made since
}

// half logs why this process could not make its half of a link, each reason once until one is made. err is
// nil if it was.
func (r *refusals) half(err error) {
	text := ""
	if half := new(ntbshm.HalfError); errors.As(err, &half) && half.Peer {
		return
	} else if half.Err != nil || noDescriptors(err) {
		text = err.Error()
	} else if err != nil {
		return
	}
	if last := r.halves.Swap(&text); text != "" && (last == nil || *last != text) {
		r.add(err)
		slog.Warn("fabric: this process cannot make its half of a link", "reason", err)
	}
}

// noDescriptors reports whether an error is that of a process, or system, whose limit of open files is
// reached.
func noDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// logEvery is the least time between two refusals that are logged.
const logEvery = time.Second

// report counts a process that was refused because of its user, and logs it, unless it has
// just logged another one: a process may try as often as it likes.
func (r *refusals) report(why error) {
	r.add(why)
	now, last := time.Now().UnixNano(), r.logged.Load()
	if now-last >= int64(logEvery) && r.logged.CompareAndSwap(last, now) {
		slog.Warn("fabric: a process was refused", "reason", why, "refused", r.count.Load())
	}
}

// add counts a process that was refused.
func (r *refusals) add(why error) {
	text := why.Error()
	r.last.Store(&text) // before the count, with which view reads it
	r.count.Add(1)
}

// check counts a process whose link did not come up, if it does not fit.
func (r *refusals) check(err error) {
	if Misfit(err) {
		r.add(err)
	}
}

func (r *refusals) view() Refusals {
	v := Refusals{Count: r.count.Load()}
	if v.Count > 0 {
		v.Last = *r.last.Load()
	}
	return v
}

// Misfit reports whether a link was refused because the two sides differ.
func Misfit(err error) bool {
	for _, e := range []error{greeting.ErrMismatch, ring.ErrMismatch, ring.ErrSameID, ring.ErrUnfit, link.ErrVersion, ntb.ErrVersion, ntb.ErrInUse} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
