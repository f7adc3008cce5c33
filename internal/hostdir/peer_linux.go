package hostdir

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// PeerOf returns the user of the process at the other end of a cable.
func PeerOf(c *unixsock.Conn) (p Peer, err error) {
	err = c.Control(func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return err
		}
		p = Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid)}
		p.Groups, err = peerGroups(fd)
		return err
	})
	if err != nil {
		return p, fmt.Errorf("ask for the peer's user: %w", err)
	}
	if err = forgetStrangers(&p, "/proc"); err != nil {
		return p, needsProc("whether a user stands for others too", err)
	}
	return p, nil
}

// forgetStrangers replaces the numbers that stand for all who have none in this user
// namespace, with /proc at proc.
func forgetStrangers(p *Peer, proc string) error {
	uid, err := overflow(proc, "uid")
	if err != nil {
		return err
	}
	gid, err := overflow(proc, "gid")
	if err != nil {
		return err
	}
	if p.UID == uid {
		p.UID = -1
	}
	if p.GID == gid {
		p.GID = -1
	}
	for i, g := range p.Groups {
		if g == gid {
			p.Groups[i] = -1
		}
	}
	return nil
}

// isOf returns ErrOtherUser unless a peer is one of users.
func isOf(p Peer, users []int) error {
	if slices.Contains(users, p.UID) {
		return nil
	}
	return fmt.Errorf("uid %d: %w", p.UID, ErrOtherUser)
}

// checkPeer returns an error unless the process at the other end belongs to the place, this
// process can tell its user from others, and it is one of users, if these are not nil.
func (p *openPlace) checkPeer(c *unixsock.Conn, users []int) error {
	if err := CheckUser(); err != nil {
		return err
	}
	peer, err := PeerOf(c)
	if err != nil {
		return err
	}
	if users != nil {
		if err := isOf(peer, users); err != nil {
			return err
		}
	}
	return p.admit(peer, os.Geteuid())
}

// admit returns a *ForbiddenError unless a peer belongs to the place: it has the uid of this
// process, or, where a group shares the place, is of that group, or is root or the owner.
func (p *openPlace) admit(peer Peer, euid int) error {
	switch {
	case p.gid < 0 && peer.UID != euid:
		return forbidden("the peer is uid %d, and this process is uid %d", peer.UID, euid)
	case p.gid >= 0 && peer.UID != euid && peer.UID != 0 && peer.UID != p.owner && !isIn(peer, p.gid):
		return forbidden("the peer is uid %d, which is not in group %s (gid %d) of %s", peer.UID, GroupName(p.gid), p.gid, p.path)
	}
	return nil
}

// explain says why the kernel does not let this process use the place, if that is what err
// is about: it may have become another user since it opened the place.
func (p *openPlace) explain(err error) error {
	if !errors.Is(err, syscall.EACCES) {
		return err
	}
	uid := os.Geteuid()
	if p.gid < 0 {
		return forbidden("%s belongs to uid %d alone, and this process is uid %d", p.path, p.owner, uid)
	}
	return forbidden("%s is for group %s (gid %d), of which this process, uid %d, is not", p.path, GroupName(p.gid), p.gid, uid)
}
