package heapmem

import (
	"errors"
	"os"
	"sync"

	"github.com/ntbnet/ntbnet/internal/hostdir"
)

// lent are the files that this process lends to others of its user, by key. A file stays usable
// by calls that have found it.
var lent sync.Map // of uint64 to *os.File

// Reasons not to lend a file.
var (
	ErrNoFile   = errors.New("there is no such file")
	errNotYours = errors.New("it is for processes of the same user")
)

// Lent returns the file that a process of a user asks for, or why it gets none.
func Lent(key uint64, who hostdir.Peer) (*os.File, error) {
	f, ok := lent.Load(key)
	switch {
	case who.UID != os.Geteuid():
		return nil, errNotYours
	case !ok:
		return nil, ErrNoFile
	}
	return f.(*os.File), nil
}
