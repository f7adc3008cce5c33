//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// memory makes a memory file for a bad peer.
func memory(t *testing.T, size int64, flags, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("bad", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		t.Skip("cannot make the bad file: ", err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if seals != 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

func eventfd(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// ringing makes a good ringing end. Nothing waits at the other end.
func ringing(t *testing.T) int {
	t.Helper()
	wait, ring, err := makeBell()
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(wait)
	return ring
}

// socket makes a socket for a bad peer.
func socket(t *testing.T, domain, kind int) int {
	t.Helper()
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("cannot make the bad socket: ", err)
	}
	return fd
}

// sockets makes one end of a pair, and closes the other.
func sockets(t *testing.T, kind int) int {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[1])
	return fds[0]
}

func pipeWriter(t *testing.T) int {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	unix.Close(p[0])
	return p[1]
}

func TestHostilePeerIsRefusedAndNothingIsLeft(t *testing.T) {
	const window = 8192
	hi := message{membarrier: true, window: window, doorbells: 1}
	var keep files // the other ends, until a test has ended
	good := func(t *testing.T) files {
		return files{memory(t, headerSize+window, 0, memfd.Seals), ringing(t)}
	}
	mem := func(size int64, flags, seals int) func(t *testing.T) files {
		return func(t *testing.T) files {
			return files{memory(t, size, flags, seals), ringing(t)}
		}
	}
	bell := func(fd func(t *testing.T) int) func(t *testing.T) files {
		return func(t *testing.T) files {
			return files{memory(t, headerSize+window, 0, memfd.Seals), fd(t)}
		}
	}
	// open makes a ringing end that is shut down only as how says.
	open := func(how int) func(t *testing.T) int {
		return func(t *testing.T) int {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			if how >= 0 {
				if err := unix.Shutdown(fds[0], how); err != nil {
					t.Fatal(err)
				}
			}
			keep = append(keep, fds[0])
			return fds[1]
		}
	}
	tests := []struct {
		name  string
		msg   []byte
		files func(t *testing.T) files
		text  string // part of the error
	}{
		{"no files", hi.encode(), func(*testing.T) files { return nil }, "0 files"},
		{"one file", hi.encode(), func(t *testing.T) files { return files{memory(t, headerSize+window, 0, memfd.Seals)} }, "1 files"},
		{"one file too many", hi.encode(), func(t *testing.T) files { return append(good(t), pipeWriter(t)) }, "3 files"},
		{"100 files too many", hi.encode(), func(t *testing.T) files {
			f := good(t)
			for range 100 {
				f = append(f, ringing(t))
			}
			return f
		}, "files that are not wanted"},
		{"more files than any count", message{window: window, doorbells: maxDoorbells}.encode(), func(t *testing.T) files {
			f := good(t)
			for range maxDoorbells {
				f = append(f, ringing(t))
			}
			return f
		}, "18 files"},
		{"short message", hi.encode()[:20], good, "message of 20 bytes"},
		{"long message", append(hi.encode(), 0), good, "message of 33 bytes"},
		{"endless message", make([]byte, 5000), good, "no message of ntbshm"},
		{"pipe for memory", hi.encode(), func(t *testing.T) files {
			return files{pipeWriter(t), ringing(t)}
		}, "not sealed"},
		{"eventfd for memory", hi.encode(), func(t *testing.T) files {
			return files{eventfd(t), ringing(t)}
		}, "not sealed"},
		{"unsealed memory", hi.encode(), mem(headerSize+window, 0, 0), "not sealed"},
		{"memory that can shrink", hi.encode(), mem(headerSize+window, 0, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), "not sealed"},
		{"memory that can be sealed more", hi.encode(), mem(headerSize+window, 0, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK), "not sealed"},
		{"small memory", hi.encode(), mem(headerSize+window-1, 0, memfd.Seals), "12287 bytes, want 12288"},
		{"large memory", hi.encode(), mem(headerSize+window+1, 0, memfd.Seals), "12289 bytes, want 12288"},
		{"memory of huge pages", message{window: 2<<20 - headerSize, doorbells: 1}.encode(),
			mem(2<<20, unix.MFD_HUGETLB, memfd.Seals), "ordinary pages"},
		{"file on a disk", hi.encode(), func(t *testing.T) files {
			fd, err := unix.Open(t.TempDir()+"/file", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
			if err != nil || unix.Ftruncate(fd, headerSize+window) != nil {
				t.Fatal(err)
			}
			return files{fd, ringing(t)}
		}, "not sealed"},
		{"memory that cannot be written", hi.encode(), mem(headerSize+window, 0, memfd.Seals|unix.F_SEAL_WRITE), "map window"},
		{"pipe for a doorbell", hi.encode(), bell(pipeWriter), "not a Unix socket"},
		{"eventfd for a doorbell", hi.encode(), bell(eventfd), "not a Unix socket"},
		{"TCP socket for a doorbell", hi.encode(), bell(func(t *testing.T) int {
			return socket(t, unix.AF_INET, unix.SOCK_STREAM)
		}), "not a Unix socket"},
		{"datagrams for a doorbell", hi.encode(), bell(func(t *testing.T) int {
			return sockets(t, unix.SOCK_DGRAM)
		}), "not a stream socket"},
		{"packets for a doorbell", hi.encode(), bell(func(t *testing.T) int {
			return sockets(t, unix.SOCK_SEQPACKET)
		}), "not a stream socket"},
		{"doorbell without a waiting end", hi.encode(), bell(func(t *testing.T) int {
			return socket(t, unix.AF_UNIX, unix.SOCK_STREAM)
		}), "not a connected socket"},
		{"listening doorbell", hi.encode(), bell(func(t *testing.T) int {
			fd := socket(t, unix.AF_UNIX, unix.SOCK_STREAM)
			// With an empty name the kernel chooses one.
			if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{}), unix.Listen(fd, 1)); err != nil {
				t.Fatal(err)
			}
			return fd
		}), "not a connected socket"},
		{"doorbell that takes bytes", hi.encode(), bell(open(-1)), "not shut"},
		{"doorbell that takes bytes this way", hi.encode(), bell(open(unix.SHUT_WR)), "not shut"},
		{"doorbell that takes bytes the other way", hi.encode(), bell(open(unix.SHUT_RD)), "not shut"},
		{"other number of doorbells", message{window: window, doorbells: 2}.encode(), func(t *testing.T) files {
			return append(good(t), ringing(t))
		}, "it has 2 doorbells, this side 1"},
	}
	startPoller(t)
	before := openFiles(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ca, cb := cables(t)
			f := tt.files(t)
			var oob []byte
			if len(f) > 0 {
				oob = unix.UnixRights(f...)
			}
			if _, _, err := cb.WriteMsgUnix(tt.msg, oob, nil); err != nil {
				t.Fatal(err)
			}
			f.close()
			d, err := New(ca, Options{Window: window})
			if err == nil {
				d.Close()
				t.Fatal("the peer was accepted")
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %q, want %q in it", err, tt.text)
			}
			cb.Close()
			keep.close()
			keep = nil
			settled(t, before)
			if got := mappings(t); got != 0 {
				t.Errorf("%d mappings are left", got)
			}
		})
	}
}

func TestBothSidesReportAnotherVersion(t *testing.T) {
	ca, cb := cables(t)
	other := goNew(ca, small)
	f, waits, err := makeFiles(small)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	defer waits.close()
	msg := message{window: int64(small.Window), doorbells: small.Doorbells}.encode()
	msg[8] = 9
	if _, _, err := cb.WriteMsgUnix(append(msg, "more"...), unix.UnixRights(f...), nil); err != nil {
		t.Fatal(err)
	}
	if r := <-other; !errors.Is(r.err, ntb.ErrVersion) {
		t.Errorf("New: %v, want ntb.ErrVersion", r.err)
	}
	// The other side still gets this side's message, and so finds the same.
	_, got, err := receive(own(t, cb))
	if err != nil {
		t.Errorf("this side's message did not arrive: %v", err)
	}
	got.close()
}

func TestBothSidesReportOtherDoorbells(t *testing.T) {
	ca, cb := cables(t)
	other := goNew(ca, Options{Window: 4096, Doorbells: 3})
	_, err := New(cb, Options{Window: 4096, Doorbells: 2})
	r := <-other
	if !errors.Is(err, ErrBadPeer) || !errors.Is(r.err, ErrBadPeer) {
		t.Errorf("%v; %v; want ErrBadPeer twice", err, r.err)
	}
}

func TestPeerCannotResizeAWindow(t *testing.T) {
	ca, cb := cables(t)
	other := goNew(ca, small)
	h, f, err := receive(own(t, cb))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	size := headerSize + h.window
	for _, n := range []int64{0, size - 1, size + 1} {
		if err := unix.Ftruncate(f[0], n); err != unix.EPERM {
			t.Errorf("resize from %d to %d: %v, want EPERM", size, n, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(f[0]), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != unix.EPERM {
		t.Errorf("one more seal: %v, want EPERM", err)
	}
	cb.Close()
	if r := <-other; !errors.Is(r.err, ntb.ErrLinkDown) {
		t.Errorf("New with a peer that hangs up: %v, want ErrLinkDown", r.err)
	}
}

func TestExchangeHonoursTheCablesDeadline(t *testing.T) {
	ca, cb := cables(t)
	if err := ca.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(ca, small); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("New: %v, want a timeout", err)
	}
	if _, err := ca.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the cable is still open: %v", err)
	}
	cb.Close()

	var a ntb.Device
	var r result
	deadline := time.Now()
	for limit := 100 * time.Millisecond; a == nil; limit *= 2 { // enough for this machine
		ca, cb = cables(t)
		deadline = time.Now().Add(limit)
		if err := ca.SetDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		other := goNew(cb, small)
		dev, err := New(ca, small)
		r = <-other
		switch {
		case err == nil && r.err == nil:
			a = dev
		case limit > time.Minute:
			t.Fatal(err, r.err)
		case err == nil:
			dev.Close()
		case r.err == nil:
			r.dev.Close()
		}
	}
	defer a.Close()
	defer r.dev.Close()
	// A deadline that were left would end waitEnd's read, and so the link.
	time.Sleep(time.Until(deadline) + 50*time.Millisecond)
	if !a.LinkUp() {
		t.Error("the link went down at the exchange's deadline")
	}
}

func TestAPeerThatTalksOnTheCableLosesTheLink(t *testing.T) {
	a, b := pair(t, small)
	if _, err := b.(*device).cable.Write([]byte("more?")); err != nil {
		t.Fatal(err)
	}
	if err := a.WaitDoorbell(0); err != ntb.ErrLinkDown {
		t.Errorf("a: %v, want ErrLinkDown", err)
	}
	if err := b.WaitDoorbell(0); err != ntb.ErrLinkDown {
		t.Errorf("b: %v, want ErrLinkDown", err)
	}
}
