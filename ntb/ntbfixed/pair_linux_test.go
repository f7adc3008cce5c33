//go:build linux && (amd64 || arm64)

package ntbfixed

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// newPair returns the two ends of a bridge within this process, whose windows of size bytes
// each are the same memory in every session.
func newPair(size int) (a, b ntb.Attachment, err error) {
	each := PageSize + (size+PageSize-1)/PageSize*PageSize
	fd, err := memfd.Create("ntbnet-fixed", int64(2*each))
	if err != nil {
		return nil, nil, fmt.Errorf("ntbfixed: %w", err)
	}
	parts := [2]Memory{{fd, 0, each}, {fd, int64(each), each}}
	lines := [2]*interruptLine{newLine(), newLine()}
	var users atomic.Int32
	users.Store(2)
	var ends [2]ntb.Attachment
	for i := range ends {
		c := Config{
			Own: parts[i], Peer: parts[1-i], Interrupt: func(uint32, int) { lines[1-i].raise() }, Wait: []func() error{lines[i].wait},
			Stop: func() {
				close(lines[i].stopped)
				if users.Add(-1) == 0 {
					unix.Close(fd)
				}
			},
		}
		if ends[i], err = Attach(c); err != nil {
			if i == 0 {
				unix.Close(fd)
			}
			return nil, nil, err // both have the same size, so the first fails
		}
	}
	return ends[0], ends[1], nil
}

// interruptLine is one interrupt of one vector.
type interruptLine struct {
	raised  chan struct{} // capacity 1
	stopped chan struct{}
}

func newLine() *interruptLine {
	return &interruptLine{raised: make(chan struct{}, 1), stopped: make(chan struct{})}
}

func (l *interruptLine) raise() {
	ntb.Fence() // what was stored is visible to the one that takes the token (as pair S11)
	select {
	case l.raised <- struct{}{}:
	default:
	}
}

var errStopped = errors.New("ntbfixed: interrupts stopped")

func (l *interruptLine) wait() error {
	select {
	case <-l.raised:
		return nil
	case <-l.stopped:
		return errStopped
	}
}
