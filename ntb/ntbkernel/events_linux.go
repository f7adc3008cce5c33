//go:build linux && (amd64 || arm64)

package ntbkernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// events are eventfds that the kernel signals: the first when the state of the link changes, and one for
// each doorbell behind it. Go's poller waits for them, so they take no threads.
type events struct {
	files []*os.File
	fds   []int32 // those of files, whose method Fd would have Read block a thread
}

func newEvents(n int) (*events, error) {
	e := &events{}
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ntbkernel: eventfd: %w", err), e.close())
		}
		e.files, e.fds = append(e.files, os.NewFile(uintptr(fd), "event")), append(e.fds, int32(fd))
	}
	return e, nil
}

// wait waits for an event. It returns an error when it is halted or closed.
func (e *events) wait(i int) error {
	var count [8]byte
	_, err := e.files[i].Read(count[:])
	return err
}

// halt has waits for doorbells return an error, until resume is called.
func (e *events) halt() { e.deadline(time.Unix(1, 0)) }

// resume ends halt.
func (e *events) resume() { e.deadline(time.Time{}) }

func (e *events) deadline(t time.Time) {
	for _, f := range e.files[1:] {
		_ = f.SetReadDeadline(t) // it fails when the file is closed, and so does the wait
	}
}

func (e *events) close() error {
	var err error
	for _, f := range e.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
