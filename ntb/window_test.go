package ntb

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"
)

func TestWindowWriteIsExact(t *testing.T) {
	for _, kind := range []MemoryKind{Cacheable, WriteCombining, Uncached} {
		src := make([]byte, 300)
		for i := range src {
			src[i] = byte(i*7 + 1)
		}
		for off := 0; off < 20; off++ {
			for n := 0; n < 260; n++ {
				mem := AlignedBytes(320)
				w := MappedWindow(mem, kind)
				from := rand.IntN(8)
				want := make([]byte, 320)
				copy(want[off:], src[from:from+n])
				for name, store := range map[string]func(int, []byte){"Write": w.Write, "Stream": w.Stream} {
					clear(mem)
					store(off, src[from:from+n])
					if !bytes.Equal(mem, want) {
						t.Fatalf("kind %d, %s: %d bytes at %d: wrong memory", kind, name, n, off)
					}
				}
			}
		}
	}
}

func TestLongWritesToABridgeAreExact(t *testing.T) {
	src := make([]byte, 3*stretch+5)
	for i := range src {
		src[i] = byte(i*7 + i>>12)
	}
	for _, n := range []int{stretch - 1, stretch, stretch + 1, 2 * stretch, 3*stretch + 5} {
		mem := AlignedBytes(len(src) + 8)
		w := MappedWindow(mem, Uncached)
		w.Write(3, src[:n])
		if !bytes.Equal(mem[3:3+n], src[:n]) || mem[2] != 0 || mem[3+n] != 0 {
			t.Fatalf("%d bytes: wrong memory", n)
		}
	}
}

func TestPublishStoresOneWord(t *testing.T) {
	for _, kind := range []MemoryKind{Cacheable, WriteCombining, Uncached} {
		mem := AlignedBytes(32)
		w := MappedWindow(mem, kind)
		w.Publish64(8, 0x1122334455667788)
		w.Store64(24, 0x99)
		w.Publish32(20, 0xaabbccdd)
		if got := Load64(mem, 8); got != 0x1122334455667788 {
			t.Errorf("Load64 = %#x", got)
		}
		if got := Load32(mem, 20); got != 0xaabbccdd {
			t.Errorf("Load32 = %#x", got)
		}
		if Load64(mem, 0) != 0 || Load32(mem, 16) != 0 || Load64(mem, 24) != 0x99 {
			t.Errorf("neighbours of the published words changed: % x", mem)
		}
		Clear64(mem, 8)
		if Load64(mem, 8) != 0 {
			t.Error("Clear64 left the word")
		}
	}
}

func TestStoreOutsideWindowPanics(t *testing.T) {
	w := MappedWindow(AlignedBytes(64), Cacheable)
	s := w.Slice(32, 32)
	for name, f := range map[string]func(){
		"write":     func() { s.Write(30, []byte("abc")) },
		"negative":  func() { s.Write(-1, []byte("a")) },
		"publish64": func() { s.Publish64(32, 1) },
		"store64":   func() { s.Store64(32, 1) },
		"publish32": func() { s.Publish32(30, 1) },
		"slice":     func() { s.Slice(0, 33) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestLoadOutsideMemoryPanics(t *testing.T) {
	mem := AlignedBytes(64)[:32]
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Load64(mem, 32)
}

func TestAlignedBytes(t *testing.T) {
	for n := range 200 {
		b := AlignedBytes(n)
		if len(b) != n || cap(b) != n {
			t.Fatalf("len %d cap %d, want %d", len(b), cap(b), n)
		}
		if n > 0 && uintptr(unsafe.Pointer(&b[0]))%64 != 0 {
			t.Fatalf("not aligned")
		}
	}
}

// A reader that sees a published word must see what was stored before it.
func TestPublishOrdersEarlierStores(t *testing.T) {
	mem := AlignedBytes(4096)
	w := MappedWindow(mem, Cacheable)
	const rounds = 20000
	done := make(chan struct{})
	seen := make(chan int, rounds)
	go func() {
		defer close(done)
		for r := uint64(1); r <= rounds; r++ {
			for Load64(mem, 0) != r {
				runtime.Gosched() // there may be only one CPU
			}
			if Load64(mem, 2048) != r*3 {
				seen <- int(r)
			}
			seen <- 0
		}
	}()
	for r := uint64(1); r <= rounds; r++ {
		w.Publish64(2048, r*3)
		w.Publish64(0, r)
		if v := <-seen; v != 0 {
			t.Fatalf("round %d: word visible before what was stored earlier", v)
		}
	}
	<-done
}

func BenchmarkPublish64(b *testing.B) {
	w := MappedWindow(AlignedBytes(64), Cacheable)
	for i := range b.N {
		w.Publish64(8, uint64(i))
	}
}

func BenchmarkFence(b *testing.B) {
	for range b.N {
		Fence()
	}
}

// recorder is a Sink that records the stores.
type recorder struct {
	off []int
	v   []byte
}

func (r *recorder) Store(off int, p []byte) {
	r.off = append(r.off, off)
	r.v = append(r.v, p...)
}
func (r *recorder) Publish(off int, v uint64, _ int) { r.Store(off, []byte{byte(v)}) }

// words is a recorder that implements all of Sink.
type words struct{ recorder }

func (w *words) Store64(off int, v uint64)           { w.Publish(off, v, 8) }
func (w *words) Update(off int, v uint64, width int) { w.Publish(off, v+1, width) }

func TestPartOfAWindowBeginsAtZero(t *testing.T) {
	var r recorder
	all := SinkWindow(Basic(&r), 256)
	part := all.Part(64, 128)
	s := part.Slice(32, 32)
	if part.Offset() != 0 || s.Offset() != 32 || part.Len() != 128 {
		t.Errorf("part at %d of %d bytes, its slice at %d", part.Offset(), part.Len(), s.Offset())
	}
	s.Publish64(8, 7)
	s.Store64(16, 0x0102)
	if r.off[0] != 64+32+8 || r.off[1] != 64+32+16 || !bytes.Equal(r.v, []byte{7, 2, 1, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("the sink got %v at %v", r.v, r.off)
	}
	w := words{}
	all = SinkWindow(&w, 64)
	all.Store64(8, 9)
	all.Update64(16, 9)
	all.Update32(20, 19)
	if !slices.Equal(w.off, []int{8, 16, 20}) || !bytes.Equal(w.v, []byte{9, 10, 20}) {
		t.Errorf("the sink got %v at %v", w.v, w.off)
	}
}
