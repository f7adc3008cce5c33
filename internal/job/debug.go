package job

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ntbnet/ntbnet/internal/collective"
)

// Debug mode: before each collective call, all PEs of the team exchange what they call
// and with which arguments, by a message, and compare. If PEs differ, all return
// ErrMismatch, which names the calls and their PEs. Without it they would wait for
// each other, perhaps for ever. Calls that manage memory and teams compare without
// debug mode too.

// ErrMismatch reports that the PEs of a collective call do not agree on its arguments, or called
// different ones.
var ErrMismatch = errors.New("shmem: PEs differ")

// Call is a kind of collective call. PEs exchange its value.
type Call uint8

const (
	callAlloc Call = 1 + iota
	callFree
	callSync
	callBarrier
	callSplitStrided
	callSplit2D
	callDestroy
	callBcast
	callAllReduce
	callBroadcast
	callCollect
	callFCollect
	callAlltoAll
	callAlltoAllS

	// Reductions, for Team.Reduce.
	AndReduce
	OrReduce
	XorReduce
	MinReduce
	MaxReduce
	SumReduce
	ProdReduce

	// Scans, for Team.Scan.
	SumInscan
	SumExscan
	numCalls
)

// words are what a PE passes: the call, with the size of an element in bits 8 to 15,
// and its arguments.
type words collective.Words

// text returns the call and its arguments, as far as they are valid.
func (w words) text(names *[numCalls]string) string {
	c, size := int(w[0]&0xff), w[0]>>8
	if c >= len(names) || names[c] == "" {
		return fmt.Sprintf("unknown call %d", w[0])
	}
	args := ""
	switch Call(c) {
	case callAlloc:
		args = fmt.Sprintf("%d bytes, aligned to %d", w[1], w[2])
	case callFree:
		args = fmt.Sprintf("offset %d", w[1])
	case callSplitStrided:
		args = fmt.Sprintf("start %d, stride %d, size %d", int64(w[1]), int64(w[2]), int64(w[3]))
	case callSplit2D:
		args = fmt.Sprintf("xrange %d", int64(w[1]))
	case callSync, callBarrier, callDestroy:
	case callBcast:
		args = fmt.Sprintf("%d elements of %d bytes, root %d", w[1], size, w[4])
	case callAllReduce:
		args = fmt.Sprintf("%d elements of %d bytes, op(3, 5) is %#x %#x in memory", w[1], size, w[4], w[5])
	case callBroadcast:
		args = fmt.Sprintf("root %d, ", w[4])
	case callAlltoAllS:
		args = fmt.Sprintf("strides %d and %d, ", w[4], w[5])
	}
	if Call(c) >= callBroadcast {
		args += fmt.Sprintf("dst at %d, src at %d, elements of %d bytes", w[2], w[3], size)
		if Call(c) != callCollect {
			args += fmt.Sprintf(", n %d", w[1])
		}
	}
	return names[c] + "(" + args + ")"
}

// compare waits until all PEs of the team have called it, and compares what they pass.
// If that is not the same, it returns ErrMismatch on all of them.
func (t *Team) compare(ctx context.Context, mine words) error {
	if err := t.engine.Begin(); err != nil {
		return err
	}
	all := make([]words, len(t.pes))
	err := t.engine.Leave(t.engine.Agree(ctx, collective.Words(mine), func(pe int, w collective.Words) { all[pe] = words(w) }))
	if err != nil {
		return err
	}
	return t.differ(all)
}

// groups is the most different calls that an error lists.
const groups = 4

// differ returns an error that wraps ErrMismatch if not all words are the same.
func (t *Team) differ(all []words) error {
	var kinds []words
	pes := map[words][]string{}
	for pe, w := range all {
		if pes[w] == nil {
			kinds = append(kinds, w)
		}
		pes[w] = append(pes[w], fmt.Sprint(t.pes[pe]))
	}
	if len(kinds) == 1 {
		return nil
	}
	var said []string
	for _, w := range kinds[:min(len(kinds), groups)] {
		who := "PE "
		if len(pes[w]) > 1 {
			who = "PEs "
		}
		said = append(said, who+strings.Join(pes[w], ", ")+": "+w.text(t.w.callNames()))
	}
	if len(kinds) > groups {
		said = append(said, fmt.Sprintf("%d other calls", len(kinds)-groups))
	}
	return fmt.Errorf("%w: %s", ErrMismatch, strings.Join(said, "; "))
}
