//go:build linux && (amd64 || arm64)

package ntbfixed

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timerStep is the shortest pause that Go's timers manage in a process that is idle otherwise.
const timerStep = time.Millisecond

// alarm is a timer of the system, for shorter pauses. It has one user.
type alarm struct {
	*os.File
	fd int // that of File, whose method Fd would have Read block a thread
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return alarm{}, fmt.Errorf("ntbfixed: timerfd_create: %w", err)
	}
	return alarm{os.NewFile(uintptr(fd), "timer"), fd}, nil
}

// sleep reports whether it slept for d.
func (a alarm) sleep(d time.Duration) bool {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	var count [8]byte
	if unix.TimerfdSettime(a.fd, 0, &at, nil) != nil {
		return false
	}
	_, err := a.Read(count[:])
	return err == nil
}
