package hostdir

import "path/filepath"

// Place is the directory where the processes of one host of a fabric meet, and what must
// be true of it. The zero Place is none.
type Place struct {
	base   string // the directory of this user's fabrics; "" where the user named a directory
	name   string // in base
	path   string
	host   int      // whose files are meant, where the hosts of a fabric share the directory; 0 where each has its own
	group  string   // name or number of the group that the directory must have; "" for any
	owners []string // names or numbers of the users who may own the directory, besides root and this user
}

// In returns the directory of that name in base. Both are private to this user.
func In(base, name string) Place {
	return Place{base: base, name: name, path: filepath.Join(base, name)}
}

// At returns a directory that is there already. It is private to this user, or belongs to
// a group: it has mode 3770, and its owner is root, this user, or one of owners. If group
// is not empty, it is that group, and the directory is made if it is not there.
//
// All hosts of a fabric may share the directory. Host 0 is that of a fabric of one host.
func At(path string, host int, group string, owners ...string) Place {
	return Place{path: path, host: host, group: group, owners: owners}
}

// Path returns the path of the directory.
func (p Place) Path() string { return p.path }

// Named reports whether it is a directory of In.
func (p Place) Named() bool { return p.base != "" }

// Found is a file that is at the path of a Place.
type Found struct {
	Mode uint32 // permissions, setuid, setgid and sticky, as chmod takes them
	UID  int
	GID  int
}

// Holding is a port that a process holds.
type Holding struct {
	Process int
	Port    int
	TCP     bool // the process accepts the connections of a TCP socket there
}

// MostUses is how many uses Elsewhere returns, and how many processes it names in each.
const MostUses = 8

// Use says who uses a directory of a fabric, and whose that is.
type Use struct {
	Path string // of the directory; empty if this user may not read which it is
	Text string
}

// Foreigner is a directory of another user's fabric.
type Foreigner struct {
	UID       int
	Name      string // empty if no name could be read
	Path      string
	Err       error // why it has no more
	Processes []int
	Owner     int // the process that owns the host's links; 0 for none
	Holdings  []Holding
	Dead      []string // sockets of processes that have ended
}
