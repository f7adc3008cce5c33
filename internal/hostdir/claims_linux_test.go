package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestClaimsEndWithTheirProcess(t *testing.T) {
	base := newBase(t)
	d, own := openMember(t, base)
	p, number, port := startHolder(t, base)
	if number != 2 || own != 1 || port < FirstFree || port > MaxPort {
		t.Errorf("process %d here; process %d, port %d there", own, number, port)
	}
	holds := func(port, want int) {
		t.Helper()
		got, ok, err := d.Holder(port)
		if err != nil || ok != (want != 0) || got != want {
			t.Errorf("port %d is held by %d, %v, %v; want %d", port, got, ok, err, want)
		}
	}
	processes := func(want ...int) {
		t.Helper()
		got, err := d.Processes()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("processes %v, %v, want %v", got, err, want)
		}
	}
	holds(port, 2)
	processes(1, 2)
	if _, err := d.ClaimPort(port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("claim of the other's port: %v, want EADDRINUSE", err)
	}
	d.ReleasePort(port) // not ours, so nothing happens
	holds(port, 2)

	p.kill() // as kill -9, and waits for the end
	holds(port, 0)
	processes(1)
	if _, err := d.ClaimPort(port); err != nil {
		t.Errorf("claim of the dead process's port: %v", err)
	}
	holds(port, 1)
	if e, n := openMember(t, base); n != 2 {
		t.Errorf("the dead process's number is not free: got %d", n)
	} else if identity(t, e) != identity(t, d) {
		t.Error("a fabric of dead processes is not used again")
	}
	onlyClaimFile(t, base)
}

func TestOwnPortsAreSeenAndHeldOnce(t *testing.T) {
	base := newBase(t)
	d, own := openMember(t, base)
	other, _ := openMember(t, base)
	for _, port := range []int{1, 2, 80, 8080, MaxPort} {
		if got, err := d.ClaimPort(port); err != nil || got != port {
			t.Fatalf("claim port %d: %d, %v", port, got, err)
		}
		for _, dir := range []*Dir{d, other} {
			if got, ok, err := dir.Holder(port); err != nil || !ok || got != own {
				t.Errorf("port %d: holder %d, %v, %v, want %d", port, got, ok, err, own)
			}
			if _, err := dir.ClaimPort(port); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("second claim of port %d: %v, want EADDRINUSE", port, err)
			}
		}
	}
	d.ReleasePort(80)
	d.ReleasePort(80)
	if _, ok, err := other.Holder(80); ok || err != nil {
		t.Errorf("released port has a holder (%v)", err)
	}
	if _, err := other.ClaimPort(80); err != nil {
		t.Error(err)
	}
	if got, _, _ := d.Holder(80); got != 2 {
		t.Errorf("port 80 is held by %d, want 2", got)
	}
	if got, _, _ := d.Holder(2); got != own {
		t.Errorf("port 2 is held by %d, want %d", got, own)
	}
	d.Close()
	if _, ok, err := other.Holder(2); ok || err != nil {
		t.Errorf("a port is held after Close (%v)", err)
	}
	if got, err := other.Processes(); err != nil || !slices.Equal(got, []int{2}) {
		t.Errorf("processes %v, %v, want 2", got, err)
	}
}

func TestProcessNumbersAreTheLowestFree(t *testing.T) {
	base := newBase(t)
	var dirs []*Dir
	for want := 1; want <= 20; want++ {
		d, n := openMember(t, base)
		if n != want {
			t.Fatalf("process %d, want %d", n, want)
		}
		if again, err := d.ClaimProcess(); again != n || err != nil {
			t.Errorf("claimed again: %d, %v", again, err)
		}
		dirs = append(dirs, d)
	}
	dirs[6].Close()
	dirs[2].Close()
	want := slices.DeleteFunc([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
		func(n int) bool { return n == 3 || n == 7 })
	for _, d := range []*Dir{dirs[0], dirs[19]} {
		if got, err := d.Processes(); err != nil || !slices.Equal(got, want) {
			t.Errorf("processes %v, %v", got, err)
		}
	}
	for _, want := range []int{3, 7, 21} {
		if _, n := openMember(t, base); n != want {
			t.Errorf("process %d, want %d", n, want)
		}
	}
}

func TestPortZeroPicksEachFreePortOnce(t *testing.T) {
	base := newBase(t)
	a, _ := openMember(t, base)
	b, _ := openMember(t, base)
	// The test takes all but three ports of the range at once. b gets those three.
	const hole = 50_000
	b.mu.Lock()
	for port := FirstFree; port <= MaxPort; port++ {
		if port < hole || port >= hole+3 {
			b.ports[port] = struct{}{} // as if b had claimed it, since the kernel may not allow 32 000 locks
		}
	}
	b.mu.Unlock()
	if _, err := a.ClaimPort(hole + 1); err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 2 {
		port, err := b.ClaimPort(0)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, port)
	}
	slices.Sort(got)
	if !slices.Equal(got, []int{hole, hole + 2}) {
		t.Errorf("ports %v, want %d and %d", got, hole, hole+2)
	}
	_, err := b.ClaimPort(0)
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "all ports") {
		t.Errorf("claim with all ports taken: %v, want EADDRINUSE", err)
	}
}

func TestConcurrentClaimsNeverGiveAPortTwice(t *testing.T) {
	base := newBase(t)
	a, _ := openMember(t, base)
	b, _ := openMember(t, base)
	var mu sync.Mutex
	owner := make(map[int]*Dir)
	var wg sync.WaitGroup
	for _, d := range []*Dir{a, b, a, b} {
		wg.Go(func() {
			for range 50 {
				port, err := d.ClaimPort(0)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if owner[port] != nil {
					t.Errorf("port %d was given twice", port)
				}
				owner[port] = d
				mu.Unlock()
			}
		})
		wg.Go(func() {
			for range 50 {
				if _, err := d.Processes(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for port, d := range owner {
		if got, ok, err := a.Holder(port); !ok || err != nil || got != d.process {
			t.Errorf("port %d is held by %d, %v, %v, want %d", port, got, ok, err, d.process)
		}
	}
}

func TestBadClaims(t *testing.T) {
	base := newBase(t)
	d := openDir(t, base)
	if _, err := d.ClaimPort(80); err == nil {
		t.Error("a port was claimed for no process")
	}
	if _, err := d.ClaimProcess(); err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{-1, MaxPort + 1} {
		if _, err := d.ClaimPort(port); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("claim port %d: %v, want EINVAL", port, err)
		}
		if _, _, err := d.Holder(port); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("holder of port %d: %v, want EINVAL", port, err)
		}
	}
	// Another program of this user can lock any bytes.
	f, err := os.OpenFile(filepath.Join(d.Path(), d.place.claimFile()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := lockBytes(int(f.Fd()), unix.F_WRLCK, holderByte(90, 1), 100); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Holder(90); !errors.Is(err, syscall.EPERM) {
		t.Errorf("holder by a lock that is no claim: %v, want EPERM", err)
	}
	if _, err := d.ClaimPort(90); !errors.Is(err, syscall.EPERM) {
		t.Errorf("claim against such a lock: %v, want EPERM", err)
	}
	d.Close()
	_, err1 := d.ClaimProcess()
	_, err2 := d.ClaimPort(0)
	_, _, err3 := d.Holder(80)
	_, err4 := d.Processes()
	for i, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("call %d after Close: %v, want ErrClosed", i, err)
		}
	}
	d.ReleasePort(80)
}
