package spec

import (
	"errors"
	"io/fs"
	"strconv"

	"github.com/ntbnet/ntbnet/internal/hostdir"
)

// DirectoryOf returns the name of the directory of one host of a fabric of several hosts. No
// name that a user may give has an @ in it.
func DirectoryOf(name string, node int) string { return name + "@" + strconv.Itoa(node) }

// Meeting says where the processes of a fabric meet: in directories, one for each node, or within a process.
type Meeting struct {
	Topology
	Name    string
	Group   string   // of the directory that Name is the path of, "" for any
	Owners  []string // users who may own that directory, besides root and this one
	Backend string   // "shm" or "mem"

	base string // of the directories of a fabric that this process has joined; "" before
}

// InProcess reports whether the fabric is memory of one process.
func (m *Meeting) InProcess() bool { return m.Backend == "mem" }

// PlaceOf returns where the processes of a host of the fabric meet.
func (m *Meeting) PlaceOf(node int) hostdir.Place {
	dir := m.Name
	if m.Several() {
		dir = DirectoryOf(m.Name, node)
	} else {
		node = 0
	}
	if IsPath(m.Name) {
		return hostdir.At(m.Name, node, m.Group, m.Owners...)
	}
	base := m.base
	if base == "" {
		base = hostdir.Find(m.dirs()...)
	}
	return hostdir.In(base, dir)
}

// dirs returns the names of the directories of a fabric with a name.
func (m *Meeting) dirs() []string {
	if !m.Several() {
		return []string{m.Name}
	}
	return allDirs(m.Name)
}

// allDirs returns the names of the directories of all fabrics of one name.
func allDirs(name string) []string {
	names := []string{name}
	for node := 1; node <= MaxNodes; node++ {
		names = append(names, DirectoryOf(name, node))
	}
	return names
}

// Choose sets the place of the directories of a fabric that this process is to join. Until decided is called, no other
// process chooses.
func (m *Meeting) Choose() (decided func(), err error) {
	if IsPath(m.Name) {
		return func() {}, nil
	}
	m.base, decided, err = hostdir.Choose(m.dirs()...)
	return decided, err
}

// Remove removes what this user's fabric of that name has left in the file system, as
// hostdir.Remove does, of all its hosts. A directory that the user named is not removed.
func Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	var places []hostdir.Place
	for _, base := range hostdir.Bases() {
		for _, dir := range allDirs(name) {
			places = append(places, hostdir.In(base, dir))
		}
	}
	return hostdir.Remove(places...)
}

// Place returns where the processes of this host meet.
func (m *Meeting) Place() hostdir.Place { return m.PlaceOf(m.Node) }

// Runs reports whether a node runs on this machine: a process of it owns its links.
func (m *Meeting) Runs(node int) (bool, error) {
	dir, err := hostdir.Open(m.PlaceOf(node), false)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	_, ok, err := dir.Owner()
	return ok, err
}

// owned returns the node of this host whose links a process of the fabric owns.
func (m *Meeting) owned() (node int, ok bool) {
	for node := 1; node <= m.Nodes; node++ {
		if m.Node != 0 && m.Node != node {
			continue
		}
		if there, err := m.Runs(node); err == nil && there {
			return node, true
		}
	}
	return 0, false
}
