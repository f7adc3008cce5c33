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
	// maxGuestLinks is how many links, and cables that may become links, the processes of another
	// user may have made to this one. Those of its own user have no limit.
	maxGuestLinks = 256
	// maxGuestCables is how many of them may be open while those beyond maxGuestLinks are told
	// why they are refused. The next ones are closed at once.
	maxGuestCables = maxGuestLinks + 64
	// refuseTimeout is how long a process that has too many may take to greet.
	refuseTimeout = time.Second
)

// guests are the links that processes of other users have made to this one, by user. A device's
// Close changes them, so they take no lock.
type guests struct{ open sync.Map } // of int to *atomic.Int64

// guest is a process of another user, from its cable to the end of the link that this becomes.
// A nil guest is a process of the own user.
type guest struct {
	who  Peer
	nth  int64 // how many of that user there were, with this one
	open *atomic.Int64
	once sync.Once // for leave
}

// enter counts a cable of a user.
func (g *guests) enter(who Peer) *guest {
	if who.UID == os.Geteuid() {
		return nil
	}
	n, ok := g.open.Load(who.UID)
	if !ok {
		n, _ = g.open.LoadOrStore(who.UID, new(atomic.Int64))
	}
	open := n.(*atomic.Int64)
	return &guest{who: who, nth: open.Add(1), open: open}
}

// leave ends what enter began. It may be called more than once.
func (g *guest) leave() {
	if g != nil {
		g.once.Do(func() { g.open.Add(-1) })
	}
}

// errTooMany reports that a user has as many links to a process as it takes of another user.
var errTooMany = errors.New("too many")

// check returns an error if the user has too many links. The process need not be told why if
// it has far too many.
func (g *guest) check() (err error, tell bool) {
	if g == nil || g.nth <= maxGuestLinks {
		return nil, true
	}
	return fmt.Errorf("pid %d, uid %d: %w links: a process takes %d of another user", g.who.PID, g.who.UID, errTooMany, maxGuestLinks), g.nth <= maxGuestCables
}

// stays returns a device whose Close is the end of the guest's stay.
func (g *guest) stays(dev ntb.Device) ntb.Device {
	if g == nil {
		return dev
	}
	return &visit{dev, g}
}

// visit is the device of a guest.
type visit struct {
	ntb.Device
	guest *guest
}

// Close implements ntb.Device.
func (v *visit) Close() error {
	defer v.guest.leave()
	return v.Device.Close()
}
