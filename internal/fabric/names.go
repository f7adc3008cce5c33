package fabric

import (
	"fmt"
	"strconv"
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

// hostName returns the name of the directory of one host of a fabric of several hosts. No
// name that a user may give has an @ in it.
func hostName(name string, node int) string { return name + "@" + strconv.Itoa(node) }

// OpenDir opens the directory of this user's fabric of one host of that name, and creates
// it if it does not exist. The empty name means DefaultName.
func OpenDir(name string) (*hostdir.Dir, error) {
	if name == "" {
		name = DefaultName
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	return hostdir.Open(hostdir.Own(), name, true)
}

// openHostDir opens the directory of one host of a fabric of several hosts. If it
// does not exist and create is not set, the error wraps fs.ErrNotExist.
func openHostDir(name string, node int, create bool) (*hostdir.Dir, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return hostdir.Open(hostdir.Own(), hostName(name, node), create)
}

// OpenBoard opens the board of the fabric that spec names, and creates it if it does
// not exist. A fabric within one process has one that is always empty.
func OpenBoard(spec *Spec) (*hostdir.Board, error) {
	if spec.Backend == "mem" {
		return hostdir.NoBoard(), nil
	}
	if err := checkName(spec.Name); err != nil {
		return nil, err
	}
	return hostdir.OpenBoard(hostdir.Own(), spec.Name, true)
}

// Remove removes what this user's fabric of that name has left in the file system, as
// hostdir.Remove does, of all its hosts.
func Remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	names := []string{name}
	for node := 1; node <= maxNodes; node++ {
		names = append(names, hostName(name, node))
	}
	return hostdir.Remove(hostdir.Own(), names...)
}
