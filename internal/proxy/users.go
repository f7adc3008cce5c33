package proxy

import (
	"fmt"
	"net/netip"
	"os/user"
	"slices"
	"strconv"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/sdp"
)

// Users are those whose processes may connect: users, and members of groups. The zero Users
// are all users.
type Users struct{ uids, gids []int }

// userNumbers and groupNumbers return the numbers of users and groups, each a name or a number. The error is one line that
// says what to do.
var (
	userNumbers  = numbersOf("user", user.Lookup, func(u *user.User) string { return u.Uid })
	groupNumbers = numbersOf("group", user.LookupGroup, func(g *user.Group) string { return g.Gid })
)

func numbersOf[T any](what string, look func(name string) (T, error), digits func(T) string) func([]string) ([]int, error) {
	return func(names []string) (all []int, err error) {
		for _, name := range names {
			text := name
			if _, err := strconv.ParseUint(name, 10, 31); err != nil {
				found, err := look(name)
				if err != nil {
					return nil, fmt.Errorf("%s %q: %w; give a name of this machine, or a number", what, name, err)
				}
				text = digits(found)
			}
			n, err := strconv.ParseUint(text, 10, 31)
			if err != nil {
				return nil, err
			}
			all = append(all, int(n))
		}
		return all, nil
	}
}

// All reports whether all users may connect.
func (u Users) All() bool { return len(u.uids) == 0 && len(u.gids) == 0 }

// allow returns an error for a user who may not connect.
func (u Users) allow(p sdp.Peer) error {
	if slices.Contains(u.uids, p.UID) || slices.ContainsFunc(u.gids, p.In) {
		return nil
	}
	return fmt.Errorf("want uid %d or gid %d", u.uids, u.gids)
}

// Fabric is the fabric of a process that names none.
type Fabric struct {
	Text   string // that names it
	Whose  string // its name, and for which processes it is
	Shares bool   // the first process of the node owns the links, and one of the others when it has ended

	spec *spec.Spec
}

// hasAddress reports whether the fabric gives an address to a host.
func (f Fabric) hasAddress(a netip.Addr) bool {
	_, ok := f.spec.Names.NodeOf(a)
	return ok
}

// hasAddresses reports whether there is such an address.
func (f Fabric) hasAddresses() bool {
	for name := range f.spec.Names {
		if _, err := netip.ParseAddr(name); err == nil {
			return true
		}
	}
	return false
}

// findFabric returns the fabric of this process.
func findFabric() (Fabric, error) {
	text, _, err := spec.Default()
	if err != nil {
		return Fabric{}, err
	}
	spec, err := spec.Parse(text)
	if err != nil {
		return Fabric{}, err
	}
	return Fabric{text, spec.Whose(), spec.Shares(), spec}, nil
}
