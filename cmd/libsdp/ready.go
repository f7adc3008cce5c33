//go:build libsdp && cgo && linux

package main

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// fd returns the socket's eventfd, which is readable while events have come that were not taken.
func (s *socket) fd() (fd int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	if s.eventFD == 0 {
		value := uint(0)
		if s.happened != 0 {
			value = 1
		}
		if s.eventFD, err = unix.Eventfd(value, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			s.eventFD = 0
		}
	}
	return s.eventFD, err
}

// closeFD closes the eventfd. The caller holds mu.
func (s *socket) closeFD() {
	if s.eventFD != 0 {
		unix.Close(s.eventFD)
		s.eventFD = 0
	}
}

// arm has goroutines wait for events that none waits for yet.
func (s *socket) arm(events int) error {
	if s.ln != nil && events&toWrite != 0 {
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	events &^= s.armed | s.happened
	s.armed |= events
	for _, e := range []int{toRead, toWrite} {
		if events&e != 0 {
			go s.watch(e)
		}
	}
	return nil
}

// watch waits for an event. An error is one too: the program's next call has it.
func (s *socket) watch(event int) {
	switch {
	case s.ln != nil:
		s.waitAccept()
	case event == toRead:
		_ = s.c.WaitRead()
	default:
		_ = s.c.WaitWrite()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed &^= event
	if s.happened == 0 && s.eventFD != 0 {
		_, _ = unix.Write(s.eventFD, one)
	}
	s.happened |= event
}

var one = []byte{1, 1, 1, 1, 1, 1, 1, 1} // any number of an eventfd but 0

// take returns the events that have come, and empties the eventfd.
func (s *socket) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.happened
	if events != 0 && s.eventFD != 0 {
		_, _ = unix.Read(s.eventFD, make([]byte, len(one)))
	}
	s.happened = 0
	return events
}
