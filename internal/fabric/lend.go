package fabric

import (
	"errors"
	"os"
	"sync"
)

// lent are the files that this process lends to others of its user, by key. A file stays usable
// by calls that have found it.
var lent sync.Map // of uint64 to *os.File

// Reasons not to lend a file.
var (
	errNoFile   = errors.New("there is no such file")
	errNotYours = errors.New("it is for processes of the same user")
)

// findLent returns the file that a process of a user asks for, or why it gets none.
func findLent(key uint64, who Peer) (*os.File, error) {
	f, ok := lent.Load(key)
	switch {
	case who.UID != os.Geteuid():
		return nil, errNotYours
	case !ok:
		return nil, errNoFile
	}
	return f.(*os.File), nil
}
