package bounce

import (
	"fmt"
	"sync/atomic"
	"syscall"
)

// ErrQuota reports that the peer's user has as many connections here as one may have. It wraps
// EAGAIN.
var ErrQuota = fmt.Errorf("bounce: too many connections of the peer's user: %w", syscall.EAGAIN)

// Quota is how many connections the processes of a user may have opened here, over all their
// links. A connection counts until its memory is free.
type Quota struct {
	limit int64 // immutable
	open  atomic.Int64
}

// NewQuota returns a Quota of so many connections.
func NewQuota(limit int) *Quota { return &Quota{limit: int64(limit)} }

// take counts one more connection, unless there are too many. A nil Quota has no limit.
func (q *Quota) take() bool {
	if q == nil || q.open.Add(1) <= q.limit {
		return true
	}
	q.open.Add(-1)
	return false
}

// give takes back one take.
func (q *Quota) give() {
	if q != nil {
		q.open.Add(-1)
	}
}
