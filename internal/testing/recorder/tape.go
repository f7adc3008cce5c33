package recorder

import (
	"fmt"
	"sync"

	"github.com/ntbnet/ntbnet/ntb"
)

// A Tape records the stores of windows, and what goes with them, in order. So a unit test
// can count them. Unlike a Recorder it knows no protocol.
type Tape struct {
	mu    sync.Mutex
	calls []Call // guarded by mu
}

// A Call is what a Tape records.
type Call struct {
	Op  string // "store", "store64", "publish32", "publish64", "update32", "update64" or "flush"
	Off int    // offset in the window
	N   int    // bytes; 0 for a flush
}

func (c Call) String() string {
	if c.Op == "flush" {
		return c.Op
	}
	return fmt.Sprintf("%s %d at %d", c.Op, c.N, c.Off)
}

// Window returns a window of memory of a kind that records its stores and passes them on
// to w.
func (t *Tape) Window(kind ntb.MemoryKind, w ntb.Window) ntb.Window {
	s := &tapeSink{t, w}
	if kind == ntb.WriteCombining {
		return ntb.CombiningWindow(s, w.Len())
	}
	return ntb.SinkWindow(s, w.Len())
}

// Take returns the calls since the last Take, as text.
func (t *Tape) Take() (all []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		all = append(all, c.String())
	}
	t.calls = nil
	return all
}

func (t *Tape) add(c Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c)
}

// tapeSink implements ntb.CombiningSink.
type tapeSink struct {
	tape *Tape
	win  ntb.Window
}

func (s *tapeSink) Store(off int, p []byte) {
	s.tape.add(Call{"store", off, len(p)})
	s.win.Write(off, p)
}

func (s *tapeSink) Store64(off int, v uint64) {
	s.tape.add(Call{"store64", off, 8})
	s.win.Store64(off, v)
}

func (s *tapeSink) Publish(off int, v uint64, width int) {
	s.tape.add(Call{fmt.Sprintf("publish%d", 8*width), off, width})
	if width == 4 {
		s.win.Publish32(off, uint32(v))
	} else {
		s.win.Publish64(off, v)
	}
}

func (s *tapeSink) Update(off int, v uint64, width int) {
	s.tape.add(Call{fmt.Sprintf("update%d", 8*width), off, width})
	if width == 4 {
		s.win.Update32(off, uint32(v))
	} else {
		s.win.Update64(off, v)
	}
}

func (s *tapeSink) Flush() { s.tape.add(Call{Op: "flush"}) }
