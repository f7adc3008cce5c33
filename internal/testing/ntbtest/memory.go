package ntbtest

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/ntbnet/ntbnet/ntb"
)

func capabilities(e *env) {
	c := e.a.Caps()
	if c.Backend == "" || c.Doorbells < 1 || c.Doorbells > 64 || c.Scratchpads < 8 || c.DMAChannels < 0 {
		e.Errorf("out of range: %+v", c)
	}
	same := func(when string) {
		if now := e.a.Caps(); now != c {
			e.Errorf("%s: %+v, before %+v", when, now, c)
		}
	}
	same("at once")
	w := e.a.Outbound()
	w.Publish64(0, 1)
	e.a.RingDoorbell(0)
	e.a.Order()
	same("after use")
	e.b.Disable()
	e.must("link down", func() bool { return !e.a.LinkUp() })
	same("with the link down")
}

func windows(e *env) {
	in, out := e.a.Inbound(), e.b.Outbound()
	if out.Len() != len(in) {
		e.Errorf("inbound of %d bytes, the peer's outbound of %d", len(in), out.Len())
	}
	if n := misalignment(in); n != 0 {
		e.Errorf("inbound begins %d bytes after a 64-byte boundary", n)
	}
	if i := slices.IndexFunc(in, func(c byte) bool { return c != 0 }); i >= 0 {
		e.Errorf("byte %d of a new window is %#x", i, in[i])
	}
	if again := e.a.Inbound(); len(again) != len(in) || &again[0] != &in[0] {
		e.Error("Inbound is another slice the second time")
	}
}

func linkUpAtFirst(e *env) {
	if !e.a.LinkUp() {
		e.Error("link is down")
	}
}

// model is what the inbound window of e.b must hold after the stores of e.a. The
// last 8 bytes are the word that tells the reader when to check.
type model struct {
	*env
	out  ntb.Window
	in   []byte
	want []byte
	seq  uint64
	rng  *rand.Rand
}

func newModel(e *env) *model {
	in := e.b.Inbound()
	return &model{env: e, out: e.a.Outbound(), in: in, want: make([]byte, len(in)), rng: rand.New(rand.NewPCG(1, 2))}
}

// room returns how many bytes can be stored to.
func (m *model) room() int { return len(m.in) - 64 }

// bytes returns n bytes, none of them 0.
func (m *model) bytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(1 + m.rng.IntN(255))
	}
	return p
}

// write stores n random bytes and then spoils the source at once. The store must
// not keep the source.
func (m *model) write(w *ntb.Window, off, at, n int) {
	p := m.bytes(n)
	copy(m.want[at:], p)
	w.Write(off, p)
	for i := range p {
		p[i] = 0
	}
}

// check waits until all stores so far have arrived, and compares the window.
func (m *model) check() {
	m.Helper()
	m.seq++
	word := len(m.in) - 8
	m.out.Publish64(word, m.seq)
	m.must("last word of the window published", func() bool { return ntb.Load64(m.in, word) == m.seq })
	if n := word; !bytes.Equal(m.in[:n], m.want[:n]) {
		for i := range n {
			if m.in[i] != m.want[i] {
				m.Fatalf("round %d: byte %d is %#x, want %#x", m.seq, i, m.in[i], m.want[i])
			}
		}
	}
}

// storesExact writes each size up to 72 at each of 8 offsets from a 64-byte
// boundary. It writes as many as fit before each check.
func storesExact(e *env) {
	m := newModel(e)
	const slot = 128
	at := 0
	for size := range 73 {
		for off := range 8 {
			if at+slot > m.room() {
				m.check()
				at = 0
			}
			m.write(&m.out, at+off, at+off, size)
			at += slot
		}
	}
	m.check()
	for i, c := range e.a.Inbound() {
		if c != 0 {
			e.Fatalf("byte %d of the storing side's own window changed", i)
		}
	}
}

func largeStoresExact(e *env) {
	m := newModel(e)
	sizes := []int{100, 127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 1025}
	sizes = append(slices.Concat(sizes, sizes, sizes), m.room()/2, m.room()-8, m.room())
	for _, size := range sizes {
		at := m.rng.IntN(m.room() - size + 1)
		m.write(&m.out, at, at, size)
		m.check()
	}
}

func publishesExact(e *env) {
	m := newModel(e)
	for range 2 { // over zeros, then over earlier contents
		for at := 0; at < 1024; at += 16 {
			p := m.bytes(8)
			m.out.Publish64(at, ntb.Load64(aligned(p), 0))
			copy(m.want[at:], p)
			p = m.bytes(4)
			m.out.Publish32(at+12, ntb.Load32(aligned(p), 0))
			copy(m.want[at+12:], p)
		}
		m.check()
	}
}

// aligned returns a copy of p in which words can be loaded.
func aligned(p []byte) []byte {
	mem := ntb.AlignedBytes(len(p))
	copy(mem, p)
	return mem
}

func slicesExact(e *env) {
	m := newModel(e)
	outer := m.out.Slice(512, 1024)
	inner := outer.Slice(8, 256)
	if outer.Len() != 1024 || inner.Len() != 256 {
		e.Fatalf("lengths %d and %d", outer.Len(), inner.Len())
	}
	m.write(&outer, 0, 512, 3)
	m.write(&outer, 1021, 512+1021, 3)
	m.write(&inner, 1, 521, 17)
	m.write(&inner, 250, 520+250, 6)
	p := m.bytes(8)
	inner.Publish64(128, ntb.Load64(aligned(p), 0))
	copy(m.want[520+128:], p)
	m.check()
}

func bytesExact(e *env) {
	m := newModel(e)
	part := m.out.Slice(512, 1024)
	if part.Offset() != 512 {
		e.Errorf("Offset is %d, want 512", part.Offset())
	}
	for _, size := range []int{1, 8, 61, 1000} {
		p := part.Bytes(3, size)
		if p == nil {
			e.Skip("the window is not ordinary memory of this machine")
		}
		if len(p) != size {
			e.Fatalf("%d bytes, want %d", len(p), size)
		}
		copy(m.want[515:], m.bytes(size))
		copy(p, m.want[515:])
		m.check()
	}
}

func misfits(e *env) {
	m := newModel(e)
	n := m.out.Len()
	part := m.out.Slice(64, 64)
	for name, store := range map[string]func(){
		"write past the end":        func() { m.out.Write(n-1, []byte{1, 2}) },
		"write before the start":    func() { m.out.Write(-1, []byte{1}) },
		"write longer than all":     func() { m.out.Write(0, make([]byte, n+1)) },
		"publish 64 past the end":   func() { m.out.Publish64(n, 1) },
		"publish 32 past the end":   func() { m.out.Publish32(n, 1) },
		"publish 64 before start":   func() { m.out.Publish64(-8, 1) },
		"slice past the end":        func() { m.out.Slice(64, n) },
		"slice of negative length":  func() { m.out.Slice(64, -1) },
		"bytes past the end":        func() { m.out.Bytes(n-1, 2) },
		"write past a slice":        func() { part.Write(60, make([]byte, 5)) },
		"publish 64 past a slice":   func() { part.Publish64(64, 1) },
		"write before a slice":      func() { part.Write(-1, []byte{1}) },
		"slice of a slice too long": func() { part.Slice(32, 64) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					e.Errorf("%s: no panic", name)
				}
			}()
			store()
		}()
	}
	m.check()
}
