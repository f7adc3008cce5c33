package proxy

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/sdp"
)

// Users are those whose processes may connect: users, and members of groups. The zero Users
// are all users.
type Users struct{ uids, gids []int }

// ParseUsers parses lists of users and groups, each a name or a number. The error is one
// line that says what to do.
func ParseUsers(users, groups []string) (u Users, err error) {
	for _, name := range users {
		uid, err := number(name, func() (string, error) {
			found, err := user.Lookup(name)
			if err != nil {
				return "", err
			}
			return found.Uid, nil
		})
		if err != nil {
			return u, fmt.Errorf("user %q: %w; give a name of this machine, or a number", name, err)
		}
		u.uids = append(u.uids, uid)
	}
	for _, name := range groups {
		gid, err := number(name, func() (string, error) {
			found, err := user.LookupGroup(name)
			if err != nil {
				return "", err
			}
			return found.Gid, nil
		})
		if err != nil {
			return u, fmt.Errorf("group %q: %w; give a name of this machine, or a number", name, err)
		}
		u.gids = append(u.gids, gid)
	}
	return u, nil
}

// number returns the number that a name is, or that look finds for it.
func number(name string, look func() (string, error)) (int, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	digits, err := look()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(digits)
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
}

// FindFabric returns the fabric of this process.
func FindFabric() (Fabric, error) {
	text, _, err := fabric.Default()
	if err != nil {
		return Fabric{}, err
	}
	spec, err := fabric.ParseSpec(text)
	if err != nil {
		return Fabric{}, err
	}
	return Fabric{text, spec.Whose(), spec.Shares()}, nil
}
