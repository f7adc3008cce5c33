package heapmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/spec"
)

// lent are the files that this process lends to others of its user, by key.
var lent sync.Map // of uint64 to *os.File

// Reasons not to lend a file.
var (
	ErrNoFile   = errors.New("there is no such file")
	errNotYours = errors.New("it is for processes of the same user")
)

// Lend lends a file to processes of this user that know its key, in all fabrics of which
// this process is, until end is called: Fetch returns them a descriptor of their own.
// The caller closes the file after that, and chooses keys that nobody guesses or uses twice.
func Lend(key uint64, f *os.File) (end func()) {
	lent.Store(key, f)
	return func() { lent.Delete(key) }
}

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

// Fetch returns the file that the process which holds a port of a node has lent. That
// process is of this machine and of this user, or there is an error. The file may be anything:
// the caller checks it, and closes it.
func Fetch(ctx context.Context, spec *spec.Spec, node, port int, key uint64) (*os.File, error) {
	dir, err := hostdir.Open(spec.PlaceOf(node), false)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	process, ok, err := dir.Holder(port)
	if err == nil && !ok {
		err = fmt.Errorf("no process of this machine holds port %d: %w", port, syscall.ECONNREFUSED)
	}
	if err != nil {
		return nil, err
	}
	conn, err := dir.Connect(ctx, process, []int{os.Geteuid()})
	if err != nil {
		return nil, err
	}
	c := &fileCable{Conn: &greeting.Conn{Conn: conn}}
	answer, release, err := greeting.Ask(ctx, c, &greeting.Message{Version: greeting.Version, Ring: link.Version, Want: greeting.WantFile, Key: key, PID: os.Getpid()})
	if err == nil {
		release()
		c.Close()
	}
	switch {
	case err != nil:
	case answer.Version != greeting.Version:
		err = fmt.Errorf("%w: it greets in version %d, this process in %d", greeting.ErrMismatch, answer.Version, greeting.Version)
	case answer.Refused != "":
		err = fmt.Errorf("it says: %.200s", answer.Refused)
	case len(c.files) != 1:
		err = fmt.Errorf("%w: %d files, want one", greeting.ErrNoGreeting, len(c.files))
	}
	if err != nil {
		unixsock.Discard(os.Geteuid(), c.files...)
		return nil, fmt.Errorf("fabric: fetch a file of process %d: %w", process, err)
	}
	return os.NewFile(uintptr(c.files[0]), "fetched"), nil
}

// fileCable is a cable that keeps the file which comes with what it reads.
type fileCable struct {
	*greeting.Conn
	files []int
}

func (c *fileCable) Read(p []byte) (int, error) {
	n, files, err := c.ReadFiles(p, 1-len(c.files))
	c.files = append(c.files, files...)
	return n, err
}
