package hostdir

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// markName is the name of a user's mark for a port.
func (p Place) markName(port, uid int) string {
	return p.prefix() + markPrefix + strconv.Itoa(port) + "-" + strconv.Itoa(uid)
}

// Handover releases a port that this Dir has claimed, and leaves a mark: another process is about
// to claim it. It does nothing for other ports. Where no file can be made, there is no mark.
func (d *Dir) Handover(port int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, own := d.ports[port]; !own {
		return
	}
	mark := d.place.markName(port, os.Geteuid())
	_ = unix.Unlinkat(d.place.fd(), mark, 0) // an old one
	_ = d.place.makeFile(mark)
	d.releasePort(port)
}

// HandedOver reports whether a process has handed a port over less than HandoverTime ago. Another
// one may have claimed it since. In the directory of a group each member can leave marks for all
// ports. So marks count of this user, of root, of the directory's owner, and of holder alone: a user
// whom the caller knows to have held the port, or -1.
func (d *Dir) HandedOver(port, holder int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.closed && slices.ContainsFunc([]int{os.Geteuid(), 0, d.place.owner, holder}, func(uid int) bool {
		return uid >= 0 && d.place.isFresh(d.place.markName(port, uid), uid)
	})
}

// isFresh reports whether a file is a mark of a user that counts. The kernel says whose it is and when
// it was made: no user can set that time.
func (p *openPlace) isFresh(mark string, uid int) bool {
	var st unix.Stat_t
	if unix.Fstatat(p.fd(), mark, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || !p.ours(&st, unix.S_IFREG) || int(st.Uid) != uid {
		return false
	}
	age := time.Since(time.Unix(st.Ctim.Unix()))
	return age >= 0 && age < HandoverTime
}

// removeMark removes a file that is an old mark of this user.
func (p *openPlace) removeMark(name string) {
	uid := os.Geteuid()
	if strings.HasPrefix(name, p.prefix()+markPrefix) && strings.HasSuffix(name, "-"+strconv.Itoa(uid)) && !p.isFresh(name, uid) {
		_ = unix.Unlinkat(p.fd(), name, 0)
	}
}
