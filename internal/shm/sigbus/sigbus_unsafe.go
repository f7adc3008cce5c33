//go:build linux && (amd64 || arm64)

package sigbus

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGuarded is the most memories that are guarded at the same time. The handler has the number too.
const maxGuarded = 1024

// none is the first address of an entry that is not used. No memory is above it.
const none = ^uintptr(0)

// An entry is a guarded memory. The handler reads first, end, and first again. So an entry that changes
// meanwhile never appears to have the beginning of one memory and the end of another one.
type entry struct {
	first atomic.Uintptr // of the addresses, or none; stored last, and by Release first
	end   atomic.Uintptr // behind the last of them
	lost  atomic.Uintptr // 1 if the handler has been there; stored by it before it maps anything
	_     uintptr
}

// guarded is what the handler reads. The mutex guards the entries among those that store them.
var (
	guarded [maxGuarded]entry
	mu      sync.Mutex
)

// previous is the address of the handler that was there before, to which the handler leaves what is
// none of its own. It is stored before the handler is installed.
//
//lint:ignore U1000 assembly loads it
var previous uintptr

// handler is the signal handler, in assembly. It runs on the thread that has touched the memory, and gives
// the addresses zero pages of the process' own.
//
//lint:ignore U1000 assembly has its address
func handler()

// handlerAddress returns the address of handler.
func handlerAddress() uintptr

var install = sync.OnceValue(func() error {
	for i := range guarded {
		guarded[i].first.Store(none)
	}
	var action sigaction
	if err := sigactionCall(nil, &action); err != nil {
		return err
	}
	previous, action.handler = action.handler, handlerAddress()
	return sigactionCall(&action, nil)
})

// sigaction is the kernel's.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

func sigactionCall(action, old *sigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS),
		uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(action.mask), 0, 0)
	if errno != 0 {
		return fmt.Errorf("sigbus: rt_sigaction: %w", errno)
	}
	return nil
}

// Memory is memory that is guarded. The zero value guards nothing.
type Memory struct{ entry *entry }

// Guard guards memory that was mapped, whole pages of it, until Release.
func Guard(mem []byte) (Memory, error) {
	if err := install(); err != nil {
		return Memory{}, err
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range guarded {
		if e := &guarded[i]; e.first.Load() == none {
			first := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
			e.end.Store(first + uintptr(len(mem)))
			e.lost.Store(0)
			e.first.Store(first)
			return Memory{e}, nil
		}
	}
	return Memory{}, errors.New("sigbus: too many memories")
}

// Lost reports whether the memory has gone. If it reports false, all that was loaded before was there.
func (m *Memory) Lost() bool { return m.entry != nil && m.entry.lost.Load() != 0 }

// Release ends what Guard began. It is called before the memory is unmapped.
func (m *Memory) Release() {
	if m.entry != nil {
		m.entry.first.Store(none)
		m.entry = nil
	}
}
