//go:build linux

package integration

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// soakHeld is the resources that a process holds.
type soakHeld struct {
	Descriptors, Goroutines int
	Mappings, Windows       int // Windows are the shared mappings among Mappings
	Threads                 int
	RSS                     int // KiB that are in memory, of which
	Shared                  int // is shared memory
	Heap                    int // KiB of the heap that are in use, in memory or not
	Tunnels                 int // tunnels that are in use
	Settled                 bool
}

// soakNumbers names the elements of soakHeld.numbers.
var soakNumbers = []string{"descriptors", "goroutines", "windows", "mappings", "threads", "KiB", "shared KiB", "heap KiB"}

func (h soakHeld) numbers() []int {
	return []int{h.Descriptors, h.Goroutines, h.Windows, h.Mappings, h.Threads, h.RSS, h.Shared, h.Heap}
}

// allowed returns how much more there may be at the end.
//
// Links and tunnels are the same in number at both times. But two processes that
// dial each other at the same moment have two links, each with a few descriptors,
// goroutines and windows. The runtime never ends a thread, and it is chance how
// many it needs at once. With cgo a thread has two mappings. The kernel splits and
// merges the mappings of the heap as it likes.
//
// The window of a tunnel is 16 MiB of the heap, and in memory as far as it was ever
// used. A tunnel to a node that starts again is new. A neighbour that starts again
// may be reached by a tunnel before its link is up. So two more tunnels are
// allowed.
func (h soakHeld) allowed() []int {
	const mib = 1 << 10 // in KiB
	heap, rss := 2*mib, max(h.RSS/5, 16*mib)
	if h.Tunnels > 0 {
		heap += 2 * (16 + 2) * mib // for each a window, and the frames that it keeps
		rss += h.Tunnels * 16 * mib
	}
	return []int{8, 4, 4, 24, 8, rss, 16 * mib, heap}
}

// since returns what has grown by more than is allowed.
func (h soakHeld) since(first soakHeld) (grown []string) {
	was, is, allowed := first.numbers(), h.numbers(), first.allowed()
	for i, what := range soakNumbers {
		if is[i]-was[i] > allowed[i] {
			grown = append(grown, fmt.Sprintf("%s: %d, then %d; at most %d more are allowed", what, was[i], is[i], allowed[i]))
		}
	}
	return grown
}

func takeHeld() (h soakHeld, err error) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return h, err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return h, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return h, err
	}
	for name, to := range map[string]*int{"Threads": &h.Threads, "VmRSS": &h.RSS, "RssShmem": &h.Shared} {
		_, value, _ := strings.Cut(string(status), "\n"+name+":")
		if _, err := fmt.Sscan(value, to); err != nil {
			return h, fmt.Errorf("%s: %w", name, err)
		}
	}
	h.Descriptors = len(fds)
	h.Mappings = strings.Count(string(maps), "\n")
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); len(f[1]) == 4 && f[1][3] == 's' {
			h.Windows++
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.Heap = int(m.HeapAlloc >> 10)
	h.Goroutines = runtime.NumGoroutine()
	return h, nil
}

// settledHeld waits until descriptors, goroutines and mappings have stayed the same
// for some seconds. Settled is set if they have.
func settledHeld() (h soakHeld, err error) {
	const enough = 4 // readings
	same := 0
	for end := time.Now().Add(soakSettle); same < enough && time.Now().Before(end); time.Sleep(time.Second) {
		debug.FreeOSMemory()
		next, err := takeHeld()
		if err != nil {
			return h, err
		}
		same++
		if next.Descriptors != h.Descriptors || next.Goroutines != h.Goroutines || next.Mappings != h.Mappings {
			same = 0
		}
		h = next
	}
	h.Settled = same >= enough
	return h, nil
}
