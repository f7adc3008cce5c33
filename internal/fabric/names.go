package fabric

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/hostdir"
)

// DefaultName is the name of the fabric if the user gives none.
const DefaultName = "default"

const maxName = 32 // length of a fabric's name in bytes

// checkName refuses names that do not consist of 1 to 32 letters, digits, '_', '.'
// or '-', or that begin with a dot.
func checkName(name string) error {
	ok := len(name) >= 1 && len(name) <= maxName && name[0] != '.'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '.' || c == '-')
	}
	if !ok {
		return fmt.Errorf("fabric: name %q: want 1 to %d letters, digits, '_', '-' or '.', no '.' first: %w",
			name, maxName, syscall.EINVAL)
	}
	return nil
}

// checkPath refuses paths of directories that are not absolute, or go back by "..", whose
// meaning links could change. Other detours are removed.
func checkPath(path string) (string, error) {
	if !isPath(path) || len(path) > maxPath || slices.Contains(strings.Split(path, "/"), "..") || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("fabric: directory %q: want an absolute path of at most %d bytes, without ..: %w", path, maxPath, syscall.EINVAL)
	}
	return filepath.Clean(path), nil
}

// setNames sets names and addresses of a node, and reports whether they can be.
func (s *Spec) setNames(node int, list string) bool {
	if s.Names == nil {
		s.Names = make(map[string]int)
	}
	for name := range strings.SplitSeq(strings.ToLower(list), ",") {
		_, numbered := parseNode(name)
		name = plainAddress(name)
		if other := s.Names[name]; numbered || other != 0 && other != node || !isMachine(name) && !isAddress(name) {
			return false
		}
		s.Names[name] = node
	}
	return true
}

const maxMachine = 253 // length of a machine's name in bytes

// isMachine reports whether a name in lower case may be that of another machine, and nothing else.
func isMachine(name string) bool {
	return name != "" && len(name) <= maxMachine && name != "localhost" && net.ParseIP(name) == nil &&
		name[len(name)-1] != '.' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// plainAddress returns an address in the form in which Spec.Names has it, and a name as it is.
func plainAddress(name string) string {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap().String()
	}
	return name
}

// isAddress reports whether a name is an address that one machine alone may have.
func isAddress(name string) bool {
	a, err := netip.ParseAddr(name)
	return err == nil && a.Zone() == "" && a.IsGlobalUnicast()
}

// NodeOf returns the node that has an address, as the spec says.
func (f *Fabric) NodeOf(a netip.Addr) (node int, ok bool) { return f.net.spec.NodeOf(a) }

// NodeOf returns the node that has an address.
func (s *Spec) NodeOf(a netip.Addr) (node int, ok bool) {
	if len(s.Names) == 0 {
		return 0, false
	}
	node, ok = s.Names[a.Unmap().String()]
	return node, ok
}

// HasNames reports whether the spec gives names or addresses to nodes.
func (f *Fabric) HasNames() bool { return len(f.net.spec.Names) > 0 }

// OwnAddr returns an address that the spec gives to this node: the preferred one if that is one of them,
// or else the first of the family of other.
func (f *Fabric) OwnAddr(preferred, other netip.Addr) (netip.Addr, bool) {
	own := f.net.spec.Addresses(f.Host())
	if slices.Contains(own, preferred) {
		return preferred, true
	}
	i := slices.IndexFunc(own, func(a netip.Addr) bool { return a.Is4() == other.Unmap().Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return own[i], true
}

// Addresses returns the addresses that the spec gives to a node.
func (s *Spec) Addresses(node int) (all []netip.Addr) {
	for _, name := range s.namesOf(node) {
		if a, err := netip.ParseAddr(name); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// Strict reports whether a dial of network "tcp" to an address that the spec gives to a node must not go
// on by TCP.
func (f *Fabric) Strict() bool { return f.net.spec.Strict }

// namesOf returns the names and addresses of a node, without its own name, in order.
func (s *Spec) namesOf(node int) (names []string) {
	for name, of := range s.Names {
		if of == node {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isPath reports whether a fabric's name is the path of its directory.
func isPath(name string) bool { return strings.HasPrefix(name, "/") }

const maxPath = 4000 // bytes

// hostName returns the name of the directory of one host of a fabric of several hosts. No
// name that a user may give has an @ in it.
func hostName(name string, node int) string { return name + "@" + strconv.Itoa(node) }

// place returns where the processes of a host of the fabric meet.
func (s *Spec) place(node int) hostdir.Place {
	switch {
	case isPath(s.Name) && s.hosts():
		return hostdir.At(s.Name, node, s.Group, s.Owners...)
	case isPath(s.Name):
		return hostdir.At(s.Name, 0, s.Group, s.Owners...)
	case s.hosts():
		return hostdir.In(s.find(), hostName(s.Name, node))
	}
	return hostdir.In(s.find(), s.Name)
}

// find returns the directory that has those of a fabric with a name.
func (s *Spec) find() string {
	if s.base != "" {
		return s.base
	}
	return hostdir.Find(s.dirs()...)
}

// dirs returns the names of the directories of a fabric with a name.
func (s *Spec) dirs() []string {
	if !s.hosts() {
		return []string{s.Name}
	}
	return allDirs(s.Name)
}

// allDirs returns the names of the directories of all fabrics of one name.
func allDirs(name string) []string {
	names := []string{name}
	for node := 1; node <= maxNodes; node++ {
		names = append(names, hostName(name, node))
	}
	return names
}

// choose returns the spec of a fabric that this process is to join, with the place of its
// directories. Until decided is called, no other process chooses.
func (s *Spec) choose() (chosen *Spec, decided func(), err error) {
	if isPath(s.Name) {
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

// Whose returns the fabric's name, and for which processes it is, for messages.
func (s *Spec) Whose() string {
	name := "fabric " + s.Kind + ":" + s.Name
	switch {
	case s.InProcess():
		return name + " of this process"
	case isPath(s.Name):
		return name + " of all who may enter that directory"
	}
	uid := os.Geteuid()
	return fmt.Sprintf("%s of user %s (uid %d)", name, hostdir.UserName(uid), uid)
}

// Remove removes what this user's fabric of that name has left in the file system, as
// hostdir.Remove does, of all its hosts. A directory that the user named is not removed.
func Remove(name string) error {
	if err := checkName(name); err != nil {
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
