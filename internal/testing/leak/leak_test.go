package leak

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorder is a testing.TB that records what Check does with it.
type recorder struct {
	testing.TB
	cleanups []func()
	errors   []string
	failed   bool
}

func (r *recorder) Helper()          {}
func (r *recorder) Failed() bool     { return r.failed }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) finish() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// expectFound has a test under check call act, and expects one complaint that
// contains all of parts. Then it undoes act, and expects a new check to find
// nothing.
func expectFound(t *testing.T, act func() (undo func()), parts ...string) {
	t.Helper()
	r := &recorder{}
	check(r, time.Millisecond)
	undo := act()
	r.finish()
	if len(r.errors) != 1 {
		t.Errorf("complaints: %q, want one", r.errors)
	} else {
		for _, p := range parts {
			if !strings.Contains(r.errors[0], p) {
				t.Errorf("%q has no %q", r.errors[0], p)
			}
		}
	}
	undo()
	expectNothing(t, func() { act()() })
}

func expectNothing(t *testing.T, act func()) {
	t.Helper()
	r := &recorder{}
	check(r, goneWithin)
	act()
	r.finish()
	if len(r.errors) != 0 {
		t.Errorf("complaints: %q", r.errors)
	}
}

func blockForever(stop chan bool) { <-stop }

func TestGoroutineIsFound(t *testing.T) {
	expectFound(t, func() func() {
		stop := make(chan bool)
		go blockForever(stop)
		return func() { close(stop) }
	}, "goroutine ", "created by ", "TestGoroutineIsFound")
}

func TestGoroutineMayEndLate(t *testing.T) {
	expectNothing(t, func() {
		stop := make(chan bool)
		go blockForever(stop)
		time.AfterFunc(20*time.Millisecond, func() { close(stop) })
	})
}

func TestWhatWasThereBeforeIsNotFound(t *testing.T) {
	stop := make(chan bool)
	defer close(stop)
	go blockForever(stop)
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	expectNothing(t, func() {})
}

func TestGoroutinesOfTestingAndSignalsAreNotFound(t *testing.T) {
	expectNothing(t, func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, os.Interrupt)
		signal.Stop(c)
	})
	// A subtest that waits for its turn is not a goroutine of this test.
	r := &recorder{}
	t.Run("group", func(t *testing.T) {
		check(r, time.Millisecond)
		t.Run("waits", func(t *testing.T) { t.Parallel() })
		r.finish()
	})
	if len(r.errors) != 0 {
		t.Errorf("complaints: %q", r.errors)
	}
}

func TestFailedTestIsNotLookedAt(t *testing.T) {
	r := &recorder{failed: true}
	check(r, time.Millisecond)
	stop := make(chan bool)
	defer close(stop)
	go blockForever(stop)
	r.finish()
	if len(r.errors) != 0 {
		t.Errorf("complaints: %q", r.errors)
	}
}

func TestEntryIsTheOutermostCall(t *testing.T) {
	tests := []struct{ name, stack, want string }{
		{"running", "goroutine 7 [chan receive]:\n" +
			"testing.inner(0x1)\n\t/x/a.go:1 +0x1\n" +
			"example.org/p.serve(...)\n\t/x/b.go:2\n" +
			"created by testing.tRunner in goroutine 1\n\t/x/c.go:3 +0x1", "example.org/p.serve(...)"},
		{"deep", "goroutine 7 [running]:\np.f()\n\t/x/a.go:1 +0x1\n...31 frames elided...\n" +
			"p.serve()\n\t/x/b.go:2\ncreated by p.g in goroutine 1\n\t/x/c.go:3 +0x1", "p.serve()"},
		{"not yet run", "goroutine 7 [runnable]:\np.serve.gowrap1()\n\t/x/a.go:1\n" +
			"runtime.goexit({})\n\t/x/b.s:2 +0x1\ncreated by p.g in goroutine 1\n\t/x/c.go:3 +0x1", "p.serve.gowrap1()"},
		{"main", "goroutine 1 [running]:\nmain.main()\n\t/x/a.go:1 +0x1", "main.main()"},
	}
	for _, tt := range tests {
		if got := entry(tt.stack); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
