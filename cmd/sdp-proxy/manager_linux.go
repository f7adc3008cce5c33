package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// manager is the service manager, by systemd's protocols sd_notify and sd_listen_fds. Its methods do nothing if there
// is none.
type manager struct {
	socket  string
	pings   <-chan time.Time // when to say that this process lives; nil if the manager does not want that
	sockets []*os.File       // that it has passed
}

// findManager returns the manager that started this process. Its children get nothing of it.
func findManager() *manager {
	m := &manager{socket: os.Getenv("NOTIFY_SOCKET"), sockets: passedSockets()}
	every, err := strconv.ParseUint(os.Getenv("WATCHDOG_USEC"), 10, 40)
	pid := os.Getenv("WATCHDOG_PID")
	if m.socket != "" && err == nil && every > 1 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		m.pings = time.Tick(time.Duration(every) * time.Microsecond / 2)
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	return m
}

// firstPassed is the first descriptor that the manager passes.
const firstPassed = 3

// passedSockets returns what the manager has passed to this process, each with its name.
func passedSockets() (all []*os.File) {
	pid, names := os.Getenv("LISTEN_PID"), strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	n, err := strconv.ParseUint(os.Getenv("LISTEN_FDS"), 10, 10)
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if err != nil || pid != strconv.Itoa(os.Getpid()) {
		return nil
	}
	for i := range int(n) {
		name := "unknown" // as of sd_listen_fds_with_names
		if i < len(names) && names[i] != "" {
			name = names[i]
		}
		unix.CloseOnExec(firstPassed + i)
		all = append(all, os.NewFile(uintptr(firstPassed+i), name))
	}
	return all
}

// tell sends what has changed. A manager that is not there is none.
func (m *manager) tell(lines ...string) {
	if m == nil || m.socket == "" {
		return
	}
	c, err := net.Dial("unixgram", m.socket)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetWriteDeadline(time.Now().Add(time.Second))
	c.Write([]byte(strings.Join(lines, "\n")))
}

// ready says that maps are served, reloading that others will be.
func (m *manager) ready(maps int) { m.tell("READY=1", fmt.Sprintf("STATUS=serving %d maps", maps)) }

func (m *manager) reloading() {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		m.tell("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
	}
}

func (m *manager) stopping(open int) {
	m.tell("STOPPING=1", fmt.Sprintf("STATUS=waiting for %d connections", open))
}

// ping says that this process lives.
func (m *manager) ping() { m.tell("WATCHDOG=1") }
