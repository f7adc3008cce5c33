package hostdir

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// credentials are a user and groups, as the kernel reports them of a process at the other
// end of a cable. They are of the moment when it connected, or began to listen.
type credentials struct {
	pid    int // 0 if it is of another pid namespace
	uid    int
	gid    int
	groups []int // supplementary
}

func (c credentials) in(gid int) bool { return c.gid == gid || slices.Contains(c.groups, gid) }

// peerOf returns the credentials of the process at the other end.
func peerOf(c *net.UnixConn) (peer credentials, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if asked = err; err != nil {
			return
		}
		peer = credentials{pid: int(cred.Pid), uid: int(cred.Uid), gid: int(cred.Gid)}
		peer.groups, asked = peerGroups(int(fd))
	})
	if err = errors.Join(err, asked); err != nil {
		return peer, fmt.Errorf("ask for the peer's user: %w", err)
	}
	return peer, nil
}

// checkPeer returns an error unless the process at the other end belongs to the place, and
// this process can tell its user from others.
func (p *openPlace) checkPeer(c *net.UnixConn) error {
	if err := checkUser(); err != nil {
		return err
	}
	peer, err := peerOf(c)
	if err != nil {
		return err
	}
	return p.admit(peer, os.Geteuid())
}

// admit returns an error unless a peer belongs to the place: it has the uid of this process,
// or, where a group shares the place, is of that group, or is root or the owner.
func (p *openPlace) admit(peer credentials, euid int) error {
	switch {
	case p.gid < 0 && peer.uid != euid:
		return fmt.Errorf("the peer is uid %d, and this process is uid %d: %w", peer.uid, euid, syscall.EPERM)
	case p.gid >= 0 && peer.uid != euid && peer.uid != 0 && peer.uid != p.owner && !peer.in(p.gid):
		return fmt.Errorf("the peer is uid %d, which is not in group %s (gid %d) of %s: %w", peer.uid, groupName(p.gid), p.gid, p.path, syscall.EACCES)
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
		return fmt.Errorf("%s belongs to uid %d alone, and this process is uid %d: %w", p.path, p.owner, uid, err)
	}
	return fmt.Errorf("%s is for group %s (gid %d), of which this process, uid %d, is not: %w", p.path, groupName(p.gid), p.gid, uid, err)
}
