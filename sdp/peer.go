package sdp

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/link"
)

// Peer is the user of the process at the other end of a connection, as the kernel of this
// machine reports it. It is that of the moment when one process first reached the other, and
// stays if the process changes its user, forks, or hands its sockets over. A number is -1 if
// the user or group has none in the user namespace of this process. Two users whose number is
// -1 need not be the same.
type Peer struct {
	PID    int // process id; 0 if the process is of another pid namespace
	UID    int
	GID    int
	Groups []int // supplementary groups
}

// In reports whether the user is in a group, by its number.
func (p Peer) In(gid int) bool { return gid >= 0 && (p.GID == gid || slices.Contains(p.Groups, gid)) }

// String returns the numbers, for messages.
func (p Peer) String() string {
	return fmt.Sprintf("pid %d, uid %d, gid %d, groups %d", p.PID, p.UID, p.GID, p.Groups)
}

// Peer returns the user of the process at the other end. It returns false if the kernel does
// not know it: that process is of another node. What such a process says of itself, or the
// process that owns its node's links of it, counts for nothing.
func (c *Conn) Peer() (p Peer, ok bool) {
	who := whose(c.pair.Peer())
	if who == nil {
		return Peer{}, false
	}
	p = *who
	p.Groups = slices.Clone(p.Groups)
	return p, true
}

// whose returns the user at the other end of a link, or nil if it is not known.
func whose(p *link.Peer) *Peer {
	if h, ok := p.Handler(link.ServiceSDP).(*handler); ok {
		return h.who
	}
	return nil
}

// maxOfUser is how many connections the processes of another user may have opened to this one.
// Those of its own user are limited only by the windows of their links.
const maxOfUser = 4096

// quotaOf returns where the connections that a peer opens count, or nil if they do not: it is of
// this user, or of another node, and then its tunnels are limited.
func (s *stack) quotaOf(p *link.Peer) *bounce.Quota {
	caps := p.Caps()
	if !caps.Untrusted || caps.User == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.quotas[caps.User.UID]
	if q == nil {
		q = bounce.NewQuota(maxOfUser)
		s.quotas[caps.User.UID] = q
	}
	return q
}

// tooMany is the reason for which a connection of a peer is refused that has too many.
func tooMany(p *link.Peer) error {
	return fmt.Errorf("a connection of %v: the processes of another user may have %d open to this one: %w", whose(p), maxOfUser, bounce.ErrQuota)
}

// errUnknown is the reason for which a listener refuses a process whose user it cannot know.
var errUnknown = errors.New("the kernel does not know the user of a process of another node; ListenConfig.AllowUnknown accepts those")

// errTCP is the reason for which a listener refuses a connection by TCP.
var errTCP = errors.New("a connection by TCP has no user; ListenConfig.AllowTCP accepts those")

// allow returns the function that decides for a listener of f whose connections are
// accepted, or nil if all are.
func (lc *ListenConfig) allow(f *Fabric, address fmt.Stringer) func(*link.Peer) error {
	if lc.Allow == nil {
		return nil
	}
	decide, unknown := lc.Allow, lc.AllowUnknown // the ListenConfig may change
	return func(p *link.Peer) (err error) {
		who, text := whose(p), p.ID().String()
		switch {
		case who != nil:
			text = who.String()
			copied := *who
			copied.Groups = slices.Clone(who.Groups)
			err = decide(copied)
		case !unknown:
			err = errUnknown
		}
		if err != nil {
			f.stack.fabric.Forbid(fmt.Errorf("%v refuses a connection of %s: %w", address, text, err))
		}
		return err
	}
}

// explainForbidden adds to the error of a dial that was refused what the listener did not
// like: this process' user.
func explainForbidden(err error) error {
	if !errors.Is(err, dial.ErrForbidden) {
		return err
	}
	self := fabric.Self()
	return fmt.Errorf("this process is uid %d, gid %d, groups %d: %w", self.UID, self.GID, self.Groups, err)
}

// errNotItsServer reports that a process says that it accepts connections for the TCP socket
// of another user. The socket itself is reached by TCP.
var errNotItsServer = errors.New("a process of another user says that it accepts connections for the TCP socket")

// mayServe returns the users of which a process may be that accepts connections for the TCP socket
// of a user. Where a group shares a fabric, each member can say that it does. Root could take the
// socket anyway, and this process' own user the connection.
func mayServe(uid int) []int { return []int{uid, 0, os.Geteuid()} }

// forbidden reports whether a dial was refused because of a user, of this process or of the
// listener's. No other way leads to the listener then.
func forbidden(err error) bool { return errors.Is(err, dial.ErrForbidden) || fabric.Forbidden(err) }
