package proxy

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watch aborts relays of which a TCP connection was reset. It finds that while both directions wait for the
// other side, as where the target takes nothing and sends nothing. One goroutine serves all relays of a
// forwarder, by an epoll instance that itself is in Go's poller.
type watch struct {
	once  sync.Once      // for begin
	epoll *os.File       // nil if the system gave none: then a reset is found when the connection is used
	ended sync.WaitGroup // the goroutine

	mu     sync.Mutex
	last   int32              // number of the last relay; guarded by mu
	relays map[int32]*watched // guarded by mu
}

// watched is a relay, and what it had passed on when a reset was seen, or at the last look since.
type watched struct {
	relay *relay
	moved int64
	timer *time.Timer // of the next look; nil before a reset
}

// begin makes the epoll instance, and starts the goroutine.
func (w *watch) begin() {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return
	}
	w.relays, w.epoll = make(map[int32]*watched), os.NewFile(uintptr(fd), "epoll")
	w.ended.Go(w.run)
}

// add watches a relay until forget is called. The kernel forgets a connection when it is closed.
func (w *watch) add(r *relay) (forget func()) {
	w.once.Do(w.begin)
	if w.epoll == nil {
		return func() {}
	}
	w.mu.Lock()
	w.last++
	for w.relays[w.last] != nil {
		w.last++
	}
	number := w.last
	w.relays[number] = &watched{relay: r}
	w.mu.Unlock()
	for _, c := range []net.Conn{r.client, r.target} {
		w.register(c, number)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if timer := w.relays[number].timer; timer != nil {
			timer.Stop()
		}
		delete(w.relays, number)
	}
}

// register has the kernel report errors of a TCP connection, once each. Errors that it has already are
// reported too.
func (w *watch) register(c net.Conn, number int32) {
	if _, ok := c.(*net.TCPConn); !ok {
		return
	}
	raw, epoll := rawSocket(c), rawSocketOf(w.epoll)
	if raw == nil || epoll == nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = epoll.Control(func(ep uintptr) {
			_ = unix.EpollCtl(int(ep), unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLET, Fd: number})
		})
	})
}

func rawSocketOf(f *os.File) syscall.RawConn {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// run waits for resets until close is called.
func (w *watch) run() {
	raw := rawSocketOf(w.epoll)
	if raw == nil {
		return
	}
	var events [64]unix.EpollEvent
	_ = raw.Read(func(fd uintptr) bool { // until the file is closed
		for {
			n, err := unix.EpollWait(int(fd), events[:], 0)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				return false
			}
			for _, e := range events[:n] {
				if e.Events&unix.EPOLLERR != 0 {
					w.reset(e.Fd)
				}
			}
		}
	})
}

// reset is called when a connection of a relay was reset, which ends when it has passed on what that had sent.
// If it passes on nothing for resetGrace, reset aborts it.
func (w *watch) reset(number int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.relays[number]; r != nil && r.timer == nil {
		r.moved = r.relay.moved()
		r.timer = time.AfterFunc(resetGrace, func() { w.look(number, r) })
	}
}

func (w *watch) look(number int32, r *watched) {
	w.mu.Lock()
	if w.relays[number] != r {
		w.mu.Unlock()
		return
	}
	before := r.moved
	r.moved = r.relay.moved()
	stuck := r.moved == before
	if !stuck {
		r.timer.Reset(resetGrace)
	}
	w.mu.Unlock()
	if stuck {
		by := byTarget
		if isDown(r.relay.client) {
			by = byClient
		}
		r.relay.abort(syscall.ECONNRESET, by)
	}
}

// arrived returns how many bytes have arrived that were not read. raw must not be nil.
func (r *reader) arrived() (n int) {
	if r.err != nil {
		return 0
	}
	_ = r.raw.Control(func(fd uintptr) {
		if n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ); n < 0 {
			n = 0
		}
	})
	return n
}

// moved returns a number that changes while bytes are passed on. What the kernel moves from socket to socket is
// counted when all of it was, so that is what the TCP connections' peers have taken.
func (r *relay) moved() int64 { return r.sum(func(i *unix.TCPInfo) uint64 { return i.Bytes_acked }) }

// activity is moved with what the TCP connections' peers have sent.
func (r *relay) activity() int64 {
	return r.sum(func(i *unix.TCPInfo) uint64 { return i.Bytes_acked + i.Bytes_received })
}

func (r *relay) sum(of func(*unix.TCPInfo) uint64) int64 {
	sum := r.toTarget.bytes.Load() + r.fromTarget.bytes.Load()
	for _, c := range []net.Conn{r.client, r.target} {
		if raw := rawSocket(c); raw != nil {
			_ = raw.Control(func(fd uintptr) {
				if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
					sum += int64(of(info))
				}
			})
		}
	}
	return sum
}

// close ends the watch. Nothing is added any more.
func (w *watch) close() {
	w.once.Do(func() {})
	if w.epoll != nil {
		w.epoll.Close()
		w.ended.Wait()
	}
}
