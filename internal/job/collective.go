package job

import (
	"context"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/onesided"
)

// Collective operations by teams. They check arguments, of which package shmem says what is
// right, and leave the rest to internal/collective. An element has size bytes.

const nilTeam = "shmem: collective call of a nil Team"

// begin begins each collective call. It checks the arguments that all calls have.
func (t *Team) begin(dst, src onesided.Object) {
	if t == nil {
		panic(nilTeam)
	}
	if dst.N > 0 && dst.Space != t.w.space || src.N > 0 && src.Space != t.w.space {
		onesided.BadWorld()
	}
}

// enter begins a call. In debug mode it compares what all PEs call.
func (t *Team) enter(ctx context.Context, mine words) error {
	if t == nil {
		panic(nilTeam)
	}
	if t.w.opts.Debug {
		if err := t.compare(ctx, mine); err != nil {
			return err
		}
	}
	return t.engine.Begin()
}

// enterWith begins a call with objects.
func (t *Team) enterWith(ctx context.Context, what Call, dst, src onesided.Object, size uintptr, n, a, b int) error {
	if what == callCollect { // n may differ
		n = 0
	}
	return t.enter(ctx, words{uint64(what) | uint64(size)<<8, uint64(n), uint64(dst.Off), uint64(src.Off), uint64(a), uint64(b)})
}

// enterAlike begins a call with objects that take the same elements, or are the same.
func (t *Team) enterAlike(ctx context.Context, what Call, dst, src onesided.Object, size uintptr, root int) error {
	t.begin(dst, src)
	n := src.N
	room(dst, n)
	t.checkRoot(root)
	apart(dst.Off, src.Off, size, n, n, true)
	return t.enterWith(ctx, what, dst, src, size, n, root, 0)
}

// room panics unless n elements fit.
func room(dst onesided.Object, n int) {
	if n > dst.N {
		onesided.BadRoom(n, dst.N)
	}
}

// apart panics if m elements of dst and n of src overlap. If same is true they may be the
// same object.
func apart(dst, src, size uintptr, m, n int, same bool) {
	if m == 0 || n == 0 || dst+uintptr(m)*size <= src || src+uintptr(n)*size <= dst || same && dst == src {
		return
	}
	panic(fmt.Sprintf("shmem: objects of a collective call overlap: %d elements at offset %d, %d at %d", m, dst, n, src))
}

// each panics if dst has no room for n elements of each PE.
func (t *Team) each(n, dst int) {
	if n > dst/len(t.pes) {
		panic(fmt.Sprintf("shmem: %d elements of each of %d PEs do not fit into an object of %d", n, len(t.pes), dst))
	}
}

// checkRoot panics if there is no PE root.
func (t *Team) checkRoot(root int) {
	if t == nil {
		panic(nilTeam)
	}
	if uint(root) >= uint(len(t.pes)) {
		onesided.BadPE(root, len(t.pes))
	}
}

// Broadcast copies src at PE root to the beginning of dst at all PEs of the team, root
// too. dst and src may be the same object.
func (t *Team) Broadcast(ctx context.Context, dst, src onesided.Object, size uintptr, root int) error {
	return t.broadcast(ctx, dst, src, size, root, false)
}

// BroadcastOthers is Broadcast that leaves root's dst as it is, as broadcasts of active sets
// do.
func (t *Team) BroadcastOthers(ctx context.Context, dst, src onesided.Object, size uintptr, root int) error {
	return t.broadcast(ctx, dst, src, size, root, true)
}

func (t *Team) broadcast(ctx context.Context, dst, src onesided.Object, size uintptr, root int, spare bool) error {
	if err := t.enterAlike(ctx, callBroadcast, dst, src, size, root); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Broadcast(ctx, dst.Off, src.Off, src.N*int(size), root, spare))
}

// Reduce combines src of all PEs, element by element, in the order of the PEs, and leaves
// the result in dst of all PEs. what is the kind of reduction that fold does, such as
// SumReduce; PEs compare it in debug mode. dst and src may be the same object.
func (t *Team) Reduce(ctx context.Context, what Call, dst, src onesided.Object, size uintptr, fold collective.Fold) error {
	if err := t.enterAlike(ctx, what, dst, src, size, 0); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Reduce(ctx, dst.Off, src.Off, src.N, int(size), fold))
}

// Scan combines src of all PEs before this one, element by element, in the order of the PEs, and leaves the result
// in dst here. For what SumInscan src of this PE is combined too, for SumExscan it is not. dst and src may be
// the same object.
func (t *Team) Scan(ctx context.Context, what Call, dst, src onesided.Object, size uintptr, fold collective.Fold) error {
	if err := t.enterAlike(ctx, what, dst, src, size, 0); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Scan(ctx, dst.Off, src.Off, src.N*int(size), what == SumInscan, fold))
}

// Bcast copies buf of PE root, which is any memory, to buf of all PEs of the team.
func (t *Team) Bcast(ctx context.Context, buf []byte, size uintptr, root int) error {
	t.checkRoot(root)
	err := t.enter(ctx, words{uint64(callBcast) | uint64(size)<<8, uint64(len(buf)) / uint64(size), 4: uint64(root)})
	if err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Bcast(ctx, buf, root))
}

// AllReduce is Reduce of buf of all PEs, which is any memory. sign returns what tells fold from
// others, in debug mode.
func (t *Team) AllReduce(ctx context.Context, buf []byte, size uintptr, fold collective.Fold, sign func() [2]uint64) error {
	var s [2]uint64
	if t != nil && t.w.opts.Debug {
		s = sign()
	}
	err := t.enter(ctx, words{uint64(callAllReduce) | uint64(size)<<8, uint64(len(buf)) / uint64(size), 4: s[0], 5: s[1]})
	if err != nil {
		return err
	}
	return t.engine.Leave(t.engine.AllReduce(ctx, buf, int(size), fold))
}
