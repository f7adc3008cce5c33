package main

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stdin returns the standard input of PE 0. The caller closes it, unless it is
// os.Stdin. The others have an empty one.
func stdin() (*os.File, error) {
	if !isTerminal(os.Stdin) {
		return os.Stdin, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() { // ends with the process, since a read from a terminal cannot be interrupted
		defer w.Close()
		io.Copy(w, foreground{os.Stdin})
	}()
	return r, nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// foreground reads from a terminal, but only while this process is in its
// foreground and there is input. Otherwise the read would stop the process,
// although perhaps no PE wants the input, as in "shmemrun ./prog &".
type foreground struct{ tty *os.File }

func (f foreground) Read(b []byte) (int, error) {
	fd := int(f.tty.Fd())
	for {
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		if err != nil {
			return 0, err
		}
		if group != unix.Getpgrp() {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 200)
		if err != nil && err != unix.EINTR {
			return 0, err
		}
		if n > 0 {
			return f.tty.Read(b)
		}
	}
}
