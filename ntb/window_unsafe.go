package ntb

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// Sink takes the stores of a window that is not mapped memory, such as one whose
// stores are delayed. It must not keep p.
type Sink interface {
	BasicSink
	// Store64 is Store of the 8 bytes of v, little endian, in one piece. It may cost less
	// than other stores.
	Store64(off int, v uint64)
	// Update is Publish of a word of which only the latest value counts. A sink that keeps
	// stores for a while may drop an older value that has not arrived. The latest value
	// arrives behind all stores before it. So stores that followed the older value, such as
	// a notification of it, may arrive before the word. Doorbells arrive behind all of them.
	Update(off int, v uint64, width int)
}

// BasicSink has the methods of a Sink by which the others can be expressed, see [Basic].
type BasicSink interface {
	// Store is an ordinary store.
	Store(off int, p []byte)
	// Publish stores the low width bytes of v, width 4 or 8, ordered after all
	// earlier stores.
	Publish(off int, v uint64, width int)
}

// Basic returns a Sink that stores each word of Store64 as 8 bytes, and drops nothing. A
// sink that passes stores on to another window must not be one: it would hide what that
// window can do.
func Basic(s BasicSink) Sink { return basic{s} }

type basic struct{ BasicSink }

func (b basic) Store64(off int, v uint64) {
	var p [8]byte
	binary.LittleEndian.PutUint64(p[:], v)
	b.Store(off, p[:])
}

func (b basic) Update(off int, v uint64, width int) { b.Publish(off, v, width) }

// MemoryKind is how the memory behind a window is mapped, and so what a publish requires of
// the CPU.
type MemoryKind uint8

const (
	// Cacheable memory is ordinary memory of this machine, which caches keep coherent. A
	// publish is one store.
	Cacheable MemoryKind = iota
	// WriteCombining memory is a bridge's window of which the CPU gathers stores in
	// buffers. They leave when a buffer is full, or is needed for something else, or is
	// flushed. So a publish flushes before its word, which would overtake payload, and
	// after it, since the word would stay. Stores should be wide.
	WriteCombining
	// Uncached memory is a bridge's window from which each store leaves by itself and in
	// order. A publish is one store. Stores should be wide.
	Uncached
)

func (k MemoryKind) String() string {
	switch k {
	case Cacheable:
		return "cacheable"
	case WriteCombining:
		return "write-combining"
	case Uncached:
		return "uncached"
	}
	return fmt.Sprintf("MemoryKind(%d)", uint8(k))
}

// Window is memory of the peer that can only be written. The zero Window has length
// 0. A Window is a small value; copies and slices of it write the same memory.
// Offsets and lengths are in bytes. A store that does not fit panics, as with a
// slice.
type Window struct {
	base unsafe.Pointer // first byte, nil if sink is set
	n    int
	off  int // offset of this window in the sink's
	part int // offset of the device's outbound window in the sink's
	sink Sink
	kind MemoryKind
}

// MappedWindow returns a window onto mapped memory, or onto heap memory in tests.
// The memory must stay in place for as long as the window is used.
func MappedWindow(mem []byte, kind MemoryKind) Window {
	return Window{base: unsafe.Pointer(unsafe.SliceData(mem)), n: len(mem), kind: kind}
}

// SinkWindow returns a window of n bytes whose stores go to s.
func SinkWindow(s Sink, n int) Window { return Window{sink: s, n: n} }

// CombiningSink is a Sink that takes the stores of write-combining memory, as the CPU is
// given them.
type CombiningSink interface {
	Sink
	// Flush empties the write-combining buffers.
	Flush()
}

// CombiningWindow returns a window of n bytes of write-combining memory whose stores and
// flushes go to s.
func CombiningWindow(s CombiningSink, n int) Window {
	return Window{sink: s, n: n, kind: WriteCombining}
}

// Len returns the length of the window in bytes.
func (w *Window) Len() int { return w.n }

// Offset returns the offset of the window in the device's outbound window, of which
// it is a slice.
func (w *Window) Offset() int { return w.off - w.part }

// Part returns the window's bytes [off, off+n), to serve as the whole outbound
// window of a device. Its Offset is 0.
func (w *Window) Part(off, n int) Window {
	s := w.Slice(off, n)
	s.part = s.off
	return s
}

// Slice returns the window's bytes [off, off+n).
func (w *Window) Slice(off, n int) Window {
	w.check(off, n)
	s := *w
	s.n = n
	s.off += off
	if s.sink == nil {
		s.base = unsafe.Add(s.base, off)
	}
	return s
}

func (w *Window) check(off, n int) {
	if off < 0 || n < 0 || off > w.n-n {
		outside(off, n, w.n)
	}
}

//go:noinline
func outside(off, n, size int) {
	panic(fmt.Sprintf("ntb: store of %d bytes at %d of a window of %d", n, off, size))
}

// Kind returns how the memory is mapped. A window of which a sink takes the stores is
// cacheable, unless CombiningWindow made it.
func (w *Window) Kind() MemoryKind { return w.kind }

// Bytes returns n bytes of the window at off, to be filled in place. If the window
// is not cacheable memory of this machine, it returns nil; the caller then uses
// Write. The bytes must not be read, since no bridge allows that.
func (w *Window) Bytes(off, n int) []byte {
	w.check(off, n)
	if w.sink != nil || w.kind != Cacheable {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(w.base, off)), n)
}

// Write stores p at off, in any order. The bytes leave with the next publish at the latest.
func (w *Window) Write(off int, p []byte) {
	lock.Device()
	w.check(off, len(p))
	switch {
	case w.sink != nil:
		w.sink.Store(w.off+off, p)
	case w.kind == Cacheable:
		copy(unsafe.Slice((*byte)(unsafe.Add(w.base, off)), len(p)), p)
	default:
		for len(p) > 0 {
			n := min(len(p), stretch)
			writeWide(unsafe.Add(w.base, off), p[:n])
			off, p = off+n, p[n:]
		}
	}
}

// stretch is how much is stored to a bridge at once, in bytes. The scheduler cannot stop a goroutine within assembly,
// and each store to a bridge may take long.
const stretch = 4 << 10

// writeWide stores p, which is not empty, to a bridge. The scheduler may stop the goroutine where the call begins.
//
//go:noinline
func writeWide(to unsafe.Pointer, p []byte) {
	copyWide(to, unsafe.Pointer(unsafe.SliceData(p)), uintptr(len(p)))
}

// Streams reports whether Stream makes non-temporal stores: on amd64, to cacheable memory of this
// machine.
func (w *Window) Streams() bool { return streams && w.sink == nil && w.kind == Cacheable }

// Stream is Write by non-temporal stores, where this processor and the window have them, as
// [Window.Streams] reports. The lines at either end that p does not fill are stored by ordinary
// stores.
func (w *Window) Stream(off int, p []byte) {
	if !w.Streams() {
		w.Write(off, p)
		return
	}
	lock.Device()
	w.check(off, len(p))
	to := unsafe.Slice((*byte)(unsafe.Add(w.base, off)), len(p))
	head := min(int(-uintptr(unsafe.Pointer(unsafe.SliceData(to)))&63), len(p))
	lines := (len(p) - head) / 64
	copy(to[:head], p)
	copy(to[head+64*lines:], p[head+64*lines:])
	if lines > 0 {
		streamLines(unsafe.Pointer(&to[head]), unsafe.Pointer(&p[head]), uintptr(lines))
	}
}

// Store64 stores v at off, a multiple of 8, in one piece. As with Write, it may
// become visible in any order with other stores. But it becomes visible before a
// word that is published later, through a window of the same device, by a goroutine
// that knows of the store. Where stores travel in packets, it need not take a
// packet of its own.
func (w *Window) Store64(off int, v uint64) {
	lock.Device()
	w.check(off, 8)
	if w.sink == nil {
		publish64(unsafe.Add(w.base, off), v)
		return
	}
	w.sink.Store64(w.off+off, v)
}

// Publish64 stores v at off, a multiple of 8, in one piece. Everything stored
// before through any window of the same device is visible to the peer first. The word
// leaves at once: it does not wait for a later store or fence.
func (w *Window) Publish64(off int, v uint64) {
	lock.Device()
	w.check(off, 8)
	switch {
	case w.kind == WriteCombining:
		w.combined(off, v, 8)
	case w.sink != nil:
		w.sink.Publish(w.off+off, v, 8)
	default:
		publish64(unsafe.Add(w.base, off), v)
	}
}

// Publish32 is Publish64 for 4 bytes at a multiple of 4.
func (w *Window) Publish32(off int, v uint32) {
	lock.Device()
	w.check(off, 4)
	switch {
	case w.kind == WriteCombining:
		w.combined(off, uint64(v), 4)
	case w.sink != nil:
		w.sink.Publish(w.off+off, uint64(v), 4)
	default:
		publish32(unsafe.Add(w.base, off), v)
	}
}

// Flush has stores leave that were made through any window of the same device. Only write-combining memory
// keeps them. A publish does the same.
func (w *Window) Flush() {
	if w.kind != WriteCombining {
		return
	}
	lock.Device()
	if w.sink != nil {
		w.sink.(CombiningSink).Flush() // CombiningWindow made the window
		return
	}
	drain()
}

// combined publishes a word of width bytes in write-combining memory: what was stored
// before leaves first, then the word.
func (w *Window) combined(off int, v uint64, width int) {
	if w.sink != nil {
		s := w.sink.(CombiningSink) // CombiningWindow made the window
		s.Flush()
		s.Publish(w.off+off, v, width)
		s.Flush()
		return
	}
	flush()
	if width == 4 {
		publish32(unsafe.Add(w.base, off), uint32(v))
	} else {
		publish64(unsafe.Add(w.base, off), v)
	}
	drain()
}

// Update64 is Publish64 of a word of which only the latest value counts. Where stores are
// kept for a while, an older value that has not arrived may be dropped. What was stored
// behind the older value may then arrive before the word. Doorbells still arrive behind it.
func (w *Window) Update64(off int, v uint64) {
	if w.sink == nil || w.kind == WriteCombining {
		w.Publish64(off, v)
		return
	}
	lock.Device()
	w.check(off, 8)
	w.sink.Update(w.off+off, v, 8)
}

// Update32 is Update64 for 4 bytes at a multiple of 4.
func (w *Window) Update32(off int, v uint32) {
	if w.sink == nil || w.kind == WriteCombining {
		w.Publish32(off, v)
		return
	}
	lock.Device()
	w.check(off, 4)
	w.sink.Update(w.off+off, uint64(v), 4)
}
