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

// PlaceOf returns where the processes of a host of the fabric meet.
func (s *Spec) PlaceOf(node int) hostdir.Place {
	dir := s.Name
	if s.Several() {
		dir = DirectoryOf(s.Name, node)
	} else {
		node = 0
	}
	if IsPath(s.Name) {
		return hostdir.At(s.Name, node, s.Group, s.Owners...)
	}
	base := s.base
	if base == "" {
		base = hostdir.Find(s.dirs()...)
	}
	return hostdir.In(base, dir)
}

// dirs returns the names of the directories of a fabric with a name.
func (s *Spec) dirs() []string {
	if !s.Several() {
		return []string{s.Name}
	}
	return allDirs(s.Name)
}

// allDirs returns the names of the directories of all fabrics of one name.
func allDirs(name string) []string {
	names := []string{name}
	for node := 1; node <= MaxNodes; node++ {
		names = append(names, DirectoryOf(name, node))
	}
	return names
}

// Choose returns the spec of a fabric that this process is to join, with the place of its
// directories. Until decided is called, no other process chooses.
func (s *Spec) Choose() (chosen *Spec, decided func(), err error) {
	if IsPath(s.Name) {
		return s, func() {}, nil
	}
	base, decided, err := hostdir.Choose(s.dirs()...)
	if err != nil {
		return nil, nil, err
	}
	own := *s
	own.base = base
	return &own, decided, nil
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

// Place returns where the processes of this spec's host meet.
func (s *Spec) Place() hostdir.Place { return s.PlaceOf(s.Node) }

// Runs reports whether a node runs on this machine: a process of it owns its links.
func (s *Spec) Runs(node int) (bool, error) {
	dir, err := hostdir.Open(s.PlaceOf(node), false)
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
