package spec

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/hostdir"
)

// DefaultName is the name of the fabric if the user gives none.
const DefaultName = "default"

const maxName = 32 // length of a fabric's name in bytes

// CheckName refuses names that do not consist of 1 to 32 letters, digits, '_', '.'
// or '-', or that begin with a dot.
func CheckName(name string) error {
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
	if !IsPath(path) || len(path) > maxPath || slices.Contains(strings.Split(path, "/"), "..") || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("fabric: directory %q: want an absolute path of at most %d bytes, without ..: %w", path, maxPath, syscall.EINVAL)
	}
	return filepath.Clean(path), nil
}

// Names are names and addresses that options give to nodes, besides their own names: in lower case, and each of one node.
type Names map[string]int

// set gives the names and addresses of a list to a node, and reports whether it can have them.
func (n *Names) set(node int, list string) bool {
	if *n == nil {
		*n = make(Names)
	}
	for name := range strings.SplitSeq(strings.ToLower(list), ",") {
		_, numbered := parseNode(name)
		name = plainAddress(name)
		if other := (*n)[name]; numbered || other != 0 && other != node || !isMachine(name) && !isAddress(name) {
			return false
		}
		(*n)[name] = node
	}
	return true
}

// Of returns the names and addresses of a node, in order.
func (n Names) Of(node int) (names []string) {
	for name, of := range n {
		if of == node {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// NodeOf returns the node that has an address.
func (n Names) NodeOf(a netip.Addr) (node int, ok bool) {
	if len(n) == 0 {
		return 0, false
	}
	node, ok = n[a.Unmap().String()]
	return node, ok
}

// Addresses returns the addresses of a node.
func (n Names) Addresses(node int) (all []netip.Addr) {
	for _, name := range n.Of(node) {
		if a, err := netip.ParseAddr(name); err == nil {
			all = append(all, a)
		}
	}
	return all
}

const maxMachine = 253 // length of a machine's name in bytes

// isMachine reports whether a name in lower case may be that of another machine, and nothing else.
func isMachine(name string) bool {
	return name != "" && len(name) <= maxMachine && name != "localhost" && net.ParseIP(name) == nil &&
		name[len(name)-1] != '.' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// plainAddress returns an address in the form in which Names has it, and a name as it is.
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

// IsPath reports whether a fabric's name is the path of its directory.
func IsPath(name string) bool { return strings.HasPrefix(name, "/") }

const maxPath = 4000 // bytes

// Whose returns the fabric's name, and for which processes it is, for messages.
func (m *Meeting) Whose() string {
	name := "fabric " + m.Kind + ":" + m.Name
	switch {
	case m.InProcess():
		return name + " of this process"
	case IsPath(m.Name):
		return name + " of all who may enter that directory"
	}
	uid := os.Geteuid()
	return fmt.Sprintf("%s of user %s (uid %d)", name, hostdir.UserName(uid), uid)
}
