package inetdiag

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Kernel asks questions, and keeps sockets from one to the next. A socket of netlink
// answers for the namespace that it was made in, so before each question the calling
// thread's namespace is compared with that of the sockets. If it is another one, they are
// closed. The zero Kernel is ready.
type Kernel struct {
	// kept is what the last question has left: nil before the first, inUse during one, and
	// noMore after Close.
	kept atomic.Pointer[asker]
}

// What is in the place of an asker. They are only compared.
var inUse, noMore = new(asker), new(asker)

// take returns what asks one question, and holds the thread for it. Who finds the sockets
// in use by another question makes some for this one.
func (k *Kernel) take() *asker {
	runtime.LockOSThread()
	for {
		a := k.kept.Load()
		if a == inUse || a == noMore {
			return newAsker()
		}
		if !k.kept.CompareAndSwap(a, inUse) {
			continue
		}
		if a == nil {
			a = newAsker()
			a.tasks = openTasks()
			a.keep = true
		}
		a.enter()
		return a
	}
}

// give takes back what take has returned.
func (k *Kernel) give(a *asker) {
	runtime.UnlockOSThread()
	if !a.keep || !k.kept.CompareAndSwap(inUse, a) {
		a.close()
	}
}

// Close closes the sockets. Later questions keep none.
func (k *Kernel) Close() {
	if a := k.kept.Swap(noMore); a != nil && a != inUse && a != noMore {
		a.close()
	}
}

// asker has the sockets for questions in one network namespace. Each -1 is a descriptor
// that is not open. One goroutine has it at a time.
type asker struct {
	keep      bool       // for other questions; constant
	sockets   [2]Netlink // indexed by diag and route
	cookie    uint64     // SO_NETNS_COOKIE of sockets[diag], or what stands for it
	namespace string     // of the sockets, as a link in /proc says it; "" if it does not
	tasks     int        // /proc/self/task, for the thread's namespace; constant
	thread    int        // whose link path is
	path      string     // relative to tasks
	room      [answerRoom]byte
}

// Indices of asker.sockets.
const (
	diag = iota
	route
)

var protocols = [...]int{diag: unix.NETLINK_SOCK_DIAG, route: unix.NETLINK_ROUTE}

func newAsker() *asker { return &asker{sockets: [2]Netlink{-1, -1}, tasks: -1} }

// enter makes sure that the sockets are of the thread's namespace. They keep it alive, so
// its name is not that of a later one.
func (a *asker) enter() {
	if a.tasks < 0 {
		return
	}
	if thread := unix.Gettid(); thread != a.thread {
		a.thread, a.path = thread, strconv.Itoa(thread)+"/ns/net"
	}
	n, err := unix.Readlinkat(a.tasks, a.path, a.room[:])
	if err != nil {
		n = 0
	}
	if n > 0 && string(a.room[:n]) == a.namespace {
		return
	}
	a.hangUp()
	a.namespace = string(a.room[:n])
}

// socket is one of the thread's namespace.
func (a *asker) socket(i int) (Netlink, error) {
	if a.sockets[i] >= 0 {
		return a.sockets[i], nil
	}
	c, err := OpenNetlink(protocols[i])
	if err == nil && i == diag {
		if a.cookie, err = namespaceOf(int(c)); err != nil {
			c.Close()
		}
	}
	if err != nil {
		return -1, err
	}
	a.sockets[i] = c
	return c, nil
}

// ask is Netlink.Ask by the socket of that index. It is not kept where it cannot be
// known whether the next thread is in the same namespace, or where the kernel has not
// answered.
func (a *asker) ask(i int, message []byte, answer func(payload []byte) error) error {
	c, err := a.socket(i)
	if err != nil {
		return err
	}
	answered, err := c.Ask(message, a.room[:], answer)
	if !answered || a.namespace == "" {
		a.hangUp()
	}
	return err
}

// hangUp closes the sockets.
func (a *asker) hangUp() {
	for i, c := range a.sockets {
		if c >= 0 {
			c.Close()
			a.sockets[i] = -1
		}
	}
}

func (a *asker) close() {
	a.hangUp()
	if a.tasks >= 0 {
		unix.Close(a.tasks)
		a.tasks = -1
	}
}

// openTasks opens the directory of this process' threads. It returns -1 if there is none,
// or one in which threads do not have the numbers that they have for themselves.
func openTasks() int {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil || !sameNumbers(string(status)) {
		return -1
	}
	fd, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// sameNumbers reports whether the process whose status it is has one number only, in the
// namespace of processes that /proc is of: it lists one for each namespace from there down.
func sameNumbers(status string) bool {
	for line := range strings.Lines(status) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(numbers)) == 1
		}
	}
	return false
}
