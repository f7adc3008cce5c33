package ntbtest

import (
	"fmt"

	"github.com/ntbnet/ntbnet/ntb"
)

func scratchpads(e *env) {
	if !allSpads(e.a, 0) || !allSpads(e.b, 0) {
		e.Error("a new scratchpad is not 0")
	}
	n := e.a.Caps().Scratchpads
	if m := e.b.Caps().Scratchpads; m < n {
		n = m
	}
	value := func(round, i int) uint32 { return uint32(round)<<28 | uint32(i+1)<<8 | 0x0f }
	for round := range 3 {
		for i := range n {
			e.a.SetPeerSpad(i, value(round, i))
		}
		for i := range n {
			e.must(fmt.Sprintf("scratchpad %d written", i), func() bool { return e.b.Spad(i) == value(round, i) })
		}
	}
	for _, v := range []uint32{^uint32(0), 0, 0x80000000} { // all ones is a valid value
		e.a.SetPeerSpad(1, v)
		e.must(fmt.Sprintf("scratchpad 1 is %#x", v), func() bool { return e.b.Spad(1) == v })
	}
	for i := range n {
		if got := e.b.Spad(i); i != 1 && got != value(2, i) {
			e.Errorf("writing scratchpad 1 changed %d to %#x", i, got)
		}
	}
	if !allSpads(e.a, 0) {
		e.Error("writing the peer's scratchpads changed own ones")
	}
}

func scratchpadOrder(e *env) {
	in, out := e.b.Inbound(), e.a.Outbound()
	var buf [slotTail]byte
	for r := uint64(1); r <= 50; r++ {
		slot := slotsAt + int(r%8)*slotSize
		p := fill(&buf, r)
		out.Write(slot, p)
		out.Publish64(firstWord, r)
		e.a.SetPeerSpad(0, uint32(r))
		e.must(fmt.Sprintf("scratchpad is %d", r), func() bool { return e.b.Spad(0) == uint32(r) })
		if got := ntb.Load64(in, firstWord); got != r {
			e.Fatalf("scratchpad is %d, but the word stored before is %d", r, got)
		}
		if got := in[slot:][:len(p)]; string(got) != string(p) {
			e.Fatalf("round %d: scratchpad is written, but payload is % x, want % x", r, got, p)
		}
	}
}
