package fabric

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

const (
	// maxForeignLinks is how many links, and cables that may become links, the processes of another
	// user may have made to this one. Those of its own user have no limit.
	maxForeignLinks = 256
	// maxForeignCables is how many of them may be open while those beyond maxForeignLinks are told
	// why they are refused. The next ones are closed at once.
	maxForeignCables = maxForeignLinks + 64
	// refuseTimeout is how long a process that has too many may take to greet.
	refuseTimeout = time.Second
)

// foreignLinks counts the links that processes of other users have made to this one, by user. A device's
// Close changes them, so they take no lock.
type foreignLinks struct{ open sync.Map } // of int to *atomic.Int64

// admission is that of a process of another user, from its cable until the link that this becomes is down.
// It is nil for a process of the own user.
type admission struct {
	who  Peer
	nth  int64 // how many of that user there were, with this one
	open *atomic.Int64
	once sync.Once // for leave
}

// enter counts a cable of a user.
func (f *foreignLinks) enter(who Peer) *admission {
	if who.UID == os.Geteuid() {
		return nil
	}
	n, ok := f.open.Load(who.UID)
	if !ok {
		n, _ = f.open.LoadOrStore(who.UID, new(atomic.Int64))
	}
	open := n.(*atomic.Int64)
	return &admission{who: who, nth: open.Add(1), open: open}
}

// leave ends what enter began. It may be called more than once.
func (a *admission) leave() {
	if a != nil {
		a.once.Do(func() { a.open.Add(-1) })
	}
}

// errTooMany reports that a user has as many links to a process as it takes of another user.
var errTooMany = errors.New("too many")

// check returns an error if the user has too many links. The process need not be told why if
// it has far too many.
func (a *admission) check() (err error, tell bool) {
	if a == nil || a.nth <= maxForeignLinks {
		return nil, true
	}
	return fmt.Errorf("pid %d, uid %d: %w links: a process takes %d of another user", a.who.PID, a.who.UID, errTooMany, maxForeignLinks), a.nth <= maxForeignCables
}

// countedDevice calls leave on Close.
type countedDevice struct {
	ntb.Device
	admission *admission
}

// Close implements ntb.Device.
func (d *countedDevice) Close() error {
	defer d.admission.leave()
	return d.Device.Close()
}
