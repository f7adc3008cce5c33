package fabric

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
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
	logged atomic.Int64 // when report has logged last, in nanoseconds since 1970
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
	if misfit(err) {
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

// misfit reports whether a link was refused because the two sides differ.
func misfit(err error) bool {
	for _, e := range []error{ErrMismatch, ring.ErrMismatch, ring.ErrSameID, ring.ErrUnfit, link.ErrVersion, ntb.ErrVersion, ntb.ErrInUse} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
