package leak

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// goneWithin is how long resources that a test has closed may take to go away.
const goneWithin = 30 * time.Second

// Check notes what the process has now. When the test and its later cleanups are
// done, it waits up to 30 s until nothing is left that was not there before. If
// something is left, it fails the test and prints it: stacks, descriptors,
// mappings. It skips a test that has failed anyway, since that has often stopped
// half-way.
func Check(t testing.TB) {
	t.Helper()
	check(t, goneWithin)
}

func check(t testing.TB, within time.Duration) {
	t.Helper()
	before := take()
	t.Cleanup(func() {
		t.Helper()
		if t.Failed() {
			return
		}
		deadline := time.Now().Add(within)
		for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
			extra := take().since(before)
			if len(extra) == 0 {
				return
			}
			if time.Now().After(deadline) {
				for _, e := range extra {
					t.Errorf("left behind: %s", e)
				}
				return
			}
			if keptByNet(extra) {
				runtime.GC()
			}
			time.Sleep(pause)
		}
	})
}

// keptByNet reports whether nothing but pipes is left. Package net keeps pipes for
// copying between sockets until the collector has run twice. This is the only case
// in which the check collects, since a collection would also close files that a
// test forgot.
func keptByNet(extra []string) bool {
	return !slices.ContainsFunc(extra, func(e string) bool { return !strings.Contains(e, " -> pipe:[") })
}

// snapshot is what a process has at one moment.
type snapshot struct {
	goroutines map[string]string // number to stack; numbers are not reused
	system                       // resources of the system
}

func take() snapshot {
	return snapshot{goroutines: goroutines(), system: takeSystem()}
}

// since returns a text for each resource in s that was not there before.
func (s snapshot) since(before snapshot) []string {
	var extra []string
	for id, stack := range s.goroutines {
		if _, ok := before.goroutines[id]; !ok {
			extra = append(extra, stack)
		}
	}
	slices.Sort(extra)
	return append(extra, s.system.since(before.system)...)
}

// goroutines returns the stacks of all goroutines except those that the runtime and
// package testing run for themselves.
func goroutines() map[string]string {
	buf := make([]byte, 64<<10)
	n := runtime.Stack(buf, true)
	for n == len(buf) { // the stacks were cut off
		buf = make([]byte, 2*len(buf))
		n = runtime.Stack(buf, true)
	}
	all := map[string]string{}
	for stack := range strings.SplitSeq(string(buf[:n]), "\n\n") {
		stack = strings.TrimSpace(stack)
		id, _, ok := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		if ok && !systemEntry(entry(stack)) {
			all[id] = stack
		}
	}
	return all
}

// entry returns the call that a goroutine began with, "main.serve(...)". A stack
// has two lines for each call, innermost first. The second line is indented. At the
// end there are at most two lines for the go statement. A goroutine that has not
// run yet may have runtime.goexit outside its entry.
func entry(stack string) string {
	last := ""
	for i, line := range strings.Split(stack, "\n") {
		if strings.HasPrefix(line, "created by ") {
			break
		}
		if i > 0 && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "runtime.goexit(") {
			last = line
		}
	}
	return last
}

func systemEntry(f string) bool {
	return strings.HasPrefix(f, "runtime.") || strings.HasPrefix(f, "testing.") ||
		strings.HasPrefix(f, "os/signal.loop(") // started once, by the first Notify
}
