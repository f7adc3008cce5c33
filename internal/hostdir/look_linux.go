package hostdir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Look returns what is at the path of the place, whether or not Open accepts it.
func (p Place) Look() (f Found, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(p.path, &st); err != nil {
		return f, &fs.PathError{Op: "stat", Path: p.path, Err: err}
	}
	return Found{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}, nil
}

// List returns the names of the directories that a base directory has, in order, as In takes
// them. It returns none if there is no base directory, and the error of Open if that is not
// private to this user.
func List(base string) ([]string, error) {
	fd, err := privateDir(unix.AT_FDCWD, base, base, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), base)
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("fabric: read directory: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && checkName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Hosts returns the hosts that have a claim file in a directory that they share, up to number
// most, in order. Host 0 is that of a fabric of one host.
func (p Place) Hosts(most int) ([]int, error) {
	place, err := p.open(false)
	if err != nil {
		return nil, err
	}
	defer place.close()
	names, err := place.names()
	if err != nil {
		return nil, err
	}
	var hosts []int
	for host := 0; host <= most; host++ {
		if slices.Contains(names, Place{host: host}.claimFile()) {
			hosts = append(hosts, host)
		}
	}
	return hosts, nil
}

// holdings returns the ports that processes hold.
func (c *Claims) holdings() ([]Holding, error) {
	ports, err := c.scan(portByte(1), portByte(ownerPort)-1)
	if err != nil {
		return nil, err
	}
	sockets, err := c.scan(socketByte(0, 0, 0), 1<<63-1)
	if err != nil {
		return nil, err
	}
	var all []Holding
	for _, at := range ports {
		port := int(at >> portShift)
		if process := int(at-portByte(port)) - 1; process >= 1 && process <= maxProcess {
			all = append(all, Holding{Process: process, Port: port})
		}
	}
	for _, at := range sockets {
		if s := (Holding{Process: int(at & (1<<16 - 1)), Port: int(at >> 46 & MaxPort), TCP: true}); s.Process != 0 && s.Port != 0 {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(all), nil // a process may publish several sockets of a port
}

// Holdings returns the ports that processes hold, by process and port. In the directory of a
// group a member may claim them in the name of another process.
func (d *Dir) Holdings() ([]Holding, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holdings()
}

// Dead returns the paths of sockets whose process has ended.
func (d *Dir) Dead() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names, err := d.place.names()
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, name := range names {
		n := d.place.cableOf(name)
		if n == 0 {
			continue
		}
		_, ok, err := d.locks.find(int64(n), 1)
		if err != nil {
			return nil, err
		}
		if !ok {
			dead = append(dead, filepath.Join(d.place.path, name))
		}
	}
	slices.Sort(dead)
	return dead, nil
}

// RemoveDead removes the sockets of processes that have ended, as far as this process may, and
// returns their paths.
func (d *Dir) RemoveDead() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	removed := d.removeDead()
	for i, name := range removed {
		removed[i] = filepath.Join(d.place.path, name)
	}
	slices.Sort(removed)
	return removed, nil
}
