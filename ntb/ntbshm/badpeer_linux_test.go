//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/hostile"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// badPeer is a peer that makes its files correctly, keeps copies of all that it
// sends, and then misuses them.
type badPeer struct {
	cable *net.UnixConn
	sent  files // the copies: memory, then the ringing ends for the victim
	waits files // the waiting ends of those
	got   files // memory, then the ringing ends of the victim's doorbells
}

// newBadPeer returns a peer and the device of its victim.
func newBadPeer(t *testing.T) (*badPeer, ntb.Device) {
	t.Helper()
	ca, cb := cables(t)
	victim := goNew(ca, small)
	f, waits, err := makeFiles(small)
	if err != nil {
		t.Fatal(err)
	}
	p := &badPeer{cable: cb, sent: f, waits: waits}
	if err := send(own(t, cb), message{window: int64(small.Window), doorbells: small.Doorbells}, f); err != nil {
		t.Fatal(err)
	}
	if _, p.got, err = receive(own(t, cb)); err != nil {
		t.Fatal(err)
	}
	r := <-victim
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(p.die)
	return p, r.dev
}

// die closes all that the peer has, as the kernel does for a dead process.
func (p *badPeer) die() {
	p.cable.Close()
	p.sent.close()
	p.got.close()
	p.waits.close()
	p.sent, p.got, p.waits = nil, nil, nil
}

// returns fails with all stacks if f does not return.
func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		buf := make([]byte, 1<<16)
		t.Fatalf("%s does not return:\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

// maxRights is how many files one message can carry (SCM_MAX_FD).
const maxRights = 253

// fill writes to a doorbell's open file until no more fits, and then clears
// O_NONBLOCK on it.
func fill(t *testing.T, fd int) {
	t.Helper()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	full := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for {
		if err := unix.Sendto(fd, full, unix.MSG_NOSIGNAL, nil); err != nil {
			break
		}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}

// abuse lists what a peer does to the ends of doorbells that it holds.
var abuse = []struct {
	name string
	f    func(t *testing.T, fd int)
}{
	{"fills it", fill},
	{"shuts it", func(t *testing.T, fd int) {
		for range 1000 {
			for how := range 3 {
				_ = unix.Shutdown(fd, how)
			}
		}
	}},
	{"sends urgent bytes", func(t *testing.T, fd int) {
		for range 1000 {
			_ = unix.Sendto(fd, []byte{1}, unix.MSG_OOB|unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
		}
	}},
	{"sends files", func(t *testing.T, fd int) {
		slow := hostile.Lingerer(t)
		_, err := unix.SendmsgN(fd, []byte{1}, unix.UnixRights(slow), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if err != unix.EPIPE {
			t.Errorf("a file goes through a doorbell: %v, want EPIPE", err)
		}
		go unix.Close(slow)
	}},
	{"sets options", func(t *testing.T, fd int) {
		for _, option := range []int{unix.SO_PASSCRED, unix.SO_SNDBUF, unix.SO_RCVBUF, unix.SO_RCVLOWAT} {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1)
		}
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600})
		for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
			_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &unix.Timeval{Sec: 3600})
		}
		if err := unix.SetNonblock(fd, false); err != nil {
			t.Error(err)
		}
	}},
	{"binds it, listens and connects it", func(t *testing.T, fd int) {
		name := &unix.SockaddrUnix{}
		_, _ = unix.Bind(fd, name), unix.Listen(fd, 1)
		if err := unix.Connect(fd, name); err == nil {
			t.Error("the doorbell was connected once more")
		}
	}},
}

// rings fails the test unless p and its victim still wake each other.
func (p *badPeer) rings(t *testing.T, d ntb.Device) {
	t.Helper()
	header, err := mapFile(p.got[0], int64(small.Window))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(header)
	w := ntb.MappedWindow(header, ntb.Cacheable)
	for i := range 100 {
		w.Publish32(ringsAt, uint32(1000+i))
		ringBell(p.got[1])
		if err := d.WaitDoorbell(0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingThatAPeerDoesToADoorbellBlocks(t *testing.T) {
	for _, tt := range abuse {
		for _, side := range []string{"it is rung by", "it rings"} {
			t.Run(tt.name+", "+side, func(t *testing.T) {
				p, d := newBadPeer(t)
				fd := p.sent[1]
				if side == "it rings" {
					fd = p.got[1]
				}
				returns(t, "abuse", func() { tt.f(t, fd) })
				returns(t, "RingDoorbell", func() { d.RingDoorbell(0) })
				returns(t, "WaitDoorbell", func() { p.rings(t, d) })
				if !d.LinkUp() {
					t.Error("the link is down")
				}
				waiter := make(chan error, 1)
				go func() { waiter <- d.WaitDoorbell(1) }()
				p.die()
				returns(t, "WaitDoorbell after the peer's death", func() {
					if err := <-waiter; err != ntb.ErrLinkDown {
						t.Errorf("WaitDoorbell: %v, want ErrLinkDown", err)
					}
				})
				returns(t, "RingDoorbell after the peer's death", func() { d.RingDoorbell(0) })
				returns(t, "Close", func() { d.Close() })
			})
		}
	}
}

func TestCloseReturnsWhateverAPeerDidToItsDoorbell(t *testing.T) {
	for _, tt := range abuse {
		t.Run(tt.name, func(t *testing.T) {
			p, d := newBadPeer(t)
			tt.f(t, p.sent[1])
			tt.f(t, p.got[1])
			done := make(chan error, 1)
			go func() { done <- d.WaitDoorbell(0) }()
			for range 100 {
				d.RingDoorbell(0)
			}
			returns(t, "Close", func() { d.Close() })
			returns(t, "WaitDoorbell", func() {
				if err := <-done; err != ntb.ErrClosed && err != ntb.ErrLinkDown {
					t.Errorf("WaitDoorbell: %v", err)
				}
			})
		})
	}
}

// An event that is no ring costs one check, and without events there is none.
func TestAWaiterSleepsWhenItsDoorbellIsShutForNothing(t *testing.T) {
	p, d := newBadPeer(t)
	var looks atomic.Int64
	began := make(chan struct{})
	bell := &d.(*device).bells[1]
	rung := bell.rung
	bell.rung = func(fd uintptr) bool {
		if looks.Add(1) == 1 {
			close(began)
		}
		return rung(fd)
	}
	done := make(chan error, 1)
	go func() { done <- d.WaitDoorbell(1) }()
	<-began
	const events = 100
	for range events {
		ringBell(p.got[2])
	}
	unix.Close(p.got[2]) // the last end: an event too
	p.got = p.got[:2]
	p.rings(t, d)
	// There may be one check before it sleeps, and one at an event from before
	// that.
	if n := looks.Load(); n < 1 || n > events+1+2 {
		t.Errorf("the waiter looked %d times at %d events", n, events+1)
	}
	select {
	case err := <-done:
		t.Errorf("the waiter returned %v without a ring", err)
	default:
	}
	d.Close()
	if err := <-done; err != ntb.ErrClosed && err != ntb.ErrLinkDown {
		t.Errorf("WaitDoorbell: %v", err)
	}
}

// The kernel closes a file that is sent and not taken. It waits for that as long as
// the file makes it.
func TestFilesOnTheCableDoNotBlock(t *testing.T) {
	for _, n := range []int{1, maxRights} {
		p, d := newBadPeer(t)
		slow := hostile.Lingerer(t)
		f := make(files, n)
		for i := range f {
			f[i] = slow
		}
		if _, _, err := p.cable.WriteMsgUnix([]byte{1}, unix.UnixRights(f...), nil); err != nil {
			t.Fatal(err)
		}
		unix.Close(slow)
		returns(t, "WaitDoorbell", func() {
			if err := d.WaitDoorbell(0); err != ntb.ErrLinkDown {
				t.Errorf("WaitDoorbell: %v, want ErrLinkDown", err)
			}
		})
		returns(t, "RingDoorbell", func() { d.RingDoorbell(0) })
		returns(t, "Close", func() { d.Close() })
	}
}

func TestFilesThatAreRefusedDoNotBlockNew(t *testing.T) {
	hi := message{window: int64(small.Window), doorbells: 1}.encode()
	for _, tt := range []struct {
		name string
		msg  []byte
		n    int // files
	}{
		{"in place of good ones", hi, 2},
		{"one too many", hi, 3},
		{"many", hi, maxRights},
		{"with bad words", []byte("nonsense"), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ca, cb := cables(t)
			slow := hostile.Lingerer(t)
			f := make(files, tt.n)
			for i := range f {
				f[i] = slow
			}
			if _, _, err := cb.WriteMsgUnix(tt.msg, unix.UnixRights(f...), nil); err != nil {
				t.Fatal(err)
			}
			unix.Close(slow)
			returns(t, "New", func() {
				if _, err := New(ca, Options{Window: small.Window}); !errors.Is(err, ErrBadPeer) {
					t.Errorf("New: %v, want ErrBadPeer", err)
				}
			})
		})
	}
}
