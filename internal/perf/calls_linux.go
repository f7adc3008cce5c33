package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Calls counts the system calls of some processes, of all their threads. While it does, each
// system call of the whole machine takes a little longer.
type Calls struct {
	fds [][]int // of each process, one for each of its threads
}

// CountCalls begins to count. The caller closes the Calls. It fails with an error that wraps
// fs.ErrPermission where the system does not let this user count.
func CountCalls(pids ...int) (*Calls, error) {
	id, err := enterID()
	if err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	c := &Calls{}
	for _, pid := range pids {
		fds, err := countOf(pid, id)
		c.fds = append(c.fds, fds)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("count system calls of process %d: %w", pid, err)
		}
	}
	return c, nil
}

// enterID returns the number of the event that is the begin of a system call.
func enterID() (uint64, error) {
	var failed error
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		b, err := os.ReadFile(filepath.Join(dir, "events/raw_syscalls/sys_enter/id"))
		if err == nil {
			return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		}
		if failed == nil {
			failed = err
		}
	}
	return 0, failed
}

// countTries is how often it is tried to count a process in which threads begin meanwhile.
const countTries = 100

// countOf returns a descriptor for each thread of a process. Those that begin later are counted
// with the thread that begins them. What it returns with an error is to be closed too.
func countOf(pid int, id uint64) (fds []int, err error) {
	for range countTries {
		before, err := threads(pid)
		if err != nil {
			return nil, err
		}
		for _, tid := range before {
			fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
				Type: unix.PERF_TYPE_TRACEPOINT, Size: unix.PERF_ATTR_SIZE_VER0, Config: id, Bits: unix.PerfBitInherit,
			}, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if errors.Is(err, unix.ESRCH) {
				continue // it has ended
			}
			if err != nil {
				return fds, err
			}
			fds = append(fds, fd)
		}
		// A thread that began meanwhile may be counted twice or not at all.
		after, err := threads(pid)
		if err != nil {
			return fds, err
		}
		if slices.Equal(before, after) {
			return fds, nil
		}
		closeCounters(fds)
		fds = nil
	}
	return nil, errors.New("threads begin all the time")
}

// threads returns the numbers of the threads of a process, in ascending order.
func threads(pid int) (tids []int, err error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	if len(tids) == 0 {
		return nil, fs.ErrNotExist
	}
	slices.Sort(tids)
	return tids, nil
}

// Each returns the system calls that each process has begun since the count began.
func (c *Calls) Each() ([]uint64, error) {
	sums := make([]uint64, len(c.fds))
	for i, fds := range c.fds {
		for _, fd := range fds {
			var b [8]byte
			if n, err := unix.Read(fd, b[:]); err != nil || n != len(b) {
				return nil, fmt.Errorf("count system calls: %d bytes: %w", n, err)
			}
			sums[i] += binary.NativeEndian.Uint64(b[:])
		}
	}
	return sums, nil
}

// Close ends the count.
func (c *Calls) Close() {
	for _, fds := range c.fds {
		closeCounters(fds)
	}
	c.fds = nil
}

func closeCounters(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
