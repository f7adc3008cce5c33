package unixsock

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/hostile"
	"golang.org/x/sys/unix"
)

// within fails if f does not return. Nothing waits for this long to pass.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not return", what)
	}
}

// until waits until ok returns true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// kernels runs a test with the kernel as it is, and as one that cannot refuse files.
func kernels(t *testing.T, test func(t *testing.T)) {
	t.Run("this kernel", test)
	t.Run("old kernel", func(t *testing.T) {
		oldKernel = "yes"
		defer func() { oldKernel = "" }()
		test(t)
	})
}

// ends returns a listener and two connected ends.
func ends(t *testing.T) (l *Listener, dialled, accepted *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenAs(t.Context(), path, Rights{UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if dialled, err = Dial(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close() })
	if accepted, err = l.AcceptConn(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return l, dialled, accepted
}

// sendAll sends bytes with a file, whose last descriptor it is.
func sendAll(t *testing.T, c *Conn, flags, fd int) {
	t.Helper()
	err := c.Control(func(s int) error {
		_, err := unix.SendmsgN(s, []byte("hello"), unix.UnixRights(fd), nil, flags|unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		return err
	})
	refused := errors.Is(err, unix.EPERM) && oldKernel == ""
	if err != nil && !refused && !errors.Is(err, unix.EOPNOTSUPP) { // urgent bytes may be missing in a kernel
		t.Fatal(err)
	}
	if err != nil {
		go unix.Close(fd) // by its sender it may linger
		return
	}
	unix.Close(fd)
}

func TestFilesThatNobodyWantsHoldNothingUp(t *testing.T) {
	for name, file := range map[string]func(testing.TB) int{"lingering": hostile.Lingerer, "nested": hostile.Nested} {
		for _, flags := range []int{0, unix.MSG_OOB} {
			kernels(t, func(t *testing.T) {
				l, peer, c := ends(t)
				sendAll(t, peer, flags, file(t))
				c.SetDeadline(time.Now().Add(time.Millisecond)) // there is nothing to read if the kernel refuses it
				within(t, name+": Read", func() {
					if _, err := c.Read(make([]byte, 5)); !errors.Is(err, ErrFiles) && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("Read: %v, want ErrFiles", err)
					}
				})
				within(t, name+": Close", func() { c.Close() })
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Read after Close: %v", err)
				}
				within(t, name+": Close of the listener", func() { l.Close() })
			})
		}
	}
}

func TestAListenerClosesWithFilesInItsQueue(t *testing.T) {
	kernels(t, func(t *testing.T) {
		l, _, _ := ends(t)
		c, err := Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sendAll(t, c, 0, hostile.Lingerer(t))
		accepting := make(chan error)
		within(t, "Close", func() { l.Close() })
		go func() { _, err := l.Accept(); accepting <- err }()
		within(t, "Accept", func() {
			if err := <-accepting; !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept after Close: %v", err)
			}
		})
		if _, err := Dial(t.Context(), l.Addr().String()); err == nil {
			t.Error("the listener still listens")
		}
	})
}

func TestFilesThatAreWantedAreTaken(t *testing.T) {
	kernels(t, func(t *testing.T) {
		_, peer, c := ends(t)
		if err := c.TakeFiles(); err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := peer.Write([]byte("plain")); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.WriteFiles([]byte("file"), int(w.Fd())); err != nil {
			t.Fatal(err)
		}
		w.Close()
		b := make([]byte, 5)
		// The file is behind what is read.
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "plain" {
			t.Fatalf("%q, %v", b, err)
		}
		n, got, err := c.ReadFiles(b, 1)
		if err != nil || string(b[:n]) != "file" || len(got) != 1 {
			t.Fatalf("%q with %d files, %v", b[:n], len(got), err)
		}
		Discard(c.UID(), got...)
		within(t, "the end of the pipe", func() {
			if _, err := r.Read(b); err != io.EOF {
				t.Errorf("the pipe: %v, want its end", err)
			}
		})
	})
}

// The kernel would drop a file for which there is no descriptor, and wait for it.
func TestFilesForWhichThereIsNoDescriptor(t *testing.T) {
	_, peer, c := ends(t)
	if err := c.TakeFiles(); err != nil {
		t.Fatal(err)
	}
	slow := hostile.Lingerer(t)
	if _, err := peer.WriteFiles([]byte{1}, slow, slow); err != nil {
		t.Fatal(err)
	}
	unix.Close(slow)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Dup(0) // all below are in use
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free) + 1, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	within(t, "Read", func() {
		if _, got, err := c.ReadFiles(make([]byte, 1), 2); !errors.Is(err, ErrFiles) {
			t.Errorf("%d files, %v", len(got), err)
		}
	})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	within(t, "Close", func() { c.Close() })
}

func TestCloseEndsCallsThatWait(t *testing.T) {
	kernels(t, func(t *testing.T) {
		l, _, c := ends(t)
		done := make(chan error, 3)
		go func() { _, err := c.Read(make([]byte, 1)); done <- err }()
		go func() { done <- c.Wait() }()
		go func() { _, err := l.Accept(); done <- err }()
		c.Close()
		l.Close()
		for range cap(done) {
			within(t, "a call", func() {
				if err := <-done; !errors.Is(err, net.ErrClosed) {
					t.Errorf("%v, want ErrClosed", err)
				}
			})
		}
	})
}

// A thousand descriptors that cannot be closed cost few threads and descriptors, and those of other users are
// closed meanwhile.
func TestTheCloserHasBounds(t *testing.T) {
	c := closer{users: map[int]*leftover{}}
	state := func(uid int) (threads, all, held int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if u := c.users[uid]; u != nil {
			threads, held = u.threads, u.held
		}
		return threads, c.threads, held
	}
	stuck := make(chan struct{})
	for i := range 1000 {
		c.add(1+i%3, func() { <-stuck })
	}
	for uid := 1; uid <= 3; uid++ {
		if threads, all, _ := state(uid); threads != maxUserThreads || all != 3*maxUserThreads || !c.full(uid) {
			t.Errorf("user %d has %d threads of %d", uid, threads, all)
		}
	}
	if c.full(4) {
		t.Error("a user is refused for what others have left")
	}
	closed := make(chan struct{})
	c.add(4, func() { close(closed) })
	within(t, "a close for another user", func() { <-closed })
	for i := range 100 {
		c.add(5+i, func() { <-stuck })
	}
	if _, all, _ := state(5); all != maxThreads {
		t.Errorf("%d threads, want %d", all, maxThreads)
	}
	close(stuck)
	until(t, "all are closed", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.held == 0 && c.threads == 0 && len(c.users) == 0
	})
}

// openFiles returns the number of this process' descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("WARNING: needs /proc: ", err)
	}
	return len(names)
}

// A thousand connections whose queues cannot be dropped, on a kernel that cannot refuse them, cost a bounded
// number of descriptors. Then the user is refused before the first read, and others are not.
func TestAThousandConnectionsCostFewDescriptors(t *testing.T) {
	oldKernel = "yes"
	defer func() { oldKernel = "" }()
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenAs(t.Context(), path, Rights{UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	slow := hostile.Nested(t)
	before := openFiles(t)
	const mallory, alice = 1 << 20, 1<<20 + 1
	connect := func(uid int) (peer, c *Conn) {
		peer, err := Dial(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = l.AcceptConn(); err != nil {
			t.Fatal(err)
		}
		c.uid = uid
		return peer, c
	}
	stuck := make(chan struct{})
	for range maxUserHeld {
		files.add(mallory, func() { <-stuck })
	}
	for range 1000 {
		peer, c := connect(mallory)
		_, err := peer.WriteFiles([]byte{1}, slow)
		if errors.Is(err, unix.ETOOMANYREFS) {
			close(stuck)
			t.Skip("WARNING: this user may not have a thousand files under way")
		}
		if err != nil {
			t.Fatal(err)
		}
		within(t, "Close", func() { c.Close() })
		peer.Close()
	}
	if n := openFiles(t); n > before+maxUserHeld {
		t.Errorf("%d descriptors more", n-before)
	}
	peer, c := connect(mallory)
	if _, err := peer.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	within(t, "Read", func() {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrFiles) {
			t.Errorf("Read: %v, want that the user is refused", err)
		}
	})
	peer.Close()
	c.Close()
	peer, c = connect(alice)
	if _, err := peer.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("Read from another user: %v", err)
	}
	peer.Close()
	c.Close()
	close(stuck)
	go unix.Close(slow) // it may be the last
}
