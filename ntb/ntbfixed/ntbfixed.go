package ntbfixed

import (
	"cmp"
	"errors"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Memory is a part of a file that can be mapped: of a memory file, or a PCI function's
// region. Offset is a multiple of the system's page.
type Memory struct {
	FD     int
	Offset int64
	Len    int // bytes, a multiple of PageSize, at least two
}

// Config is what one side of a bridge is made of.
type Config struct {
	// Own is this side's memory, which the peer writes. Peer is the peer's, as this side
	// maps it: a header page and the window behind it. The files stay the caller's, and
	// open until the attachment is closed.
	Own, Peer Memory
	// Kind is how Peer is mapped.
	Kind ntb.MemoryKind
	// Backend is the name of the backend in ntb.Caps; "fixed" if it is "".
	Backend string
	// Untrusted and RemoteCPU are those of ntb.Caps.
	Untrusted, RemoteCPU bool
	// Revocable is set if the memory may go away while it is mapped, as when a file is made smaller, or a
	// function taken out. That
	// ends a session. Then ntb.Caps has Revocable.
	Revocable bool
	// Zeros is set, besides Revocable, if memory that has gone may read as zeros in place of raising a
	// signal, as when a file is made longer again. A session then marks Own, and reads the mark often. So
	// Zeros is not for memory of a function, which takes long to read.
	Zeros bool
	// Lingers is set if the peer's memory goes with this side. Close then waits until the peer has kept what
	// has arrived, for a second at the most.
	Lingers bool
	// Sole is set if no other process can have a session at this end. Else Open looks for one in the
	// peer's memory, and so reads across the bridge.
	Sole bool
	// ID is what the peer's Interrupt is called with, to interrupt this side, and its Gone. Without
	// interrupts it counts only if Named is set.
	ID    uint32
	Named bool
	// Interrupt interrupts the peer whose ID is id, if there is one: the number is the peer's
	// word. bit is the doorbell for which it does, or 0: where there are several interrupts, it chooses
	// one of them. It does not block, and interrupts may be lost or arrive as one. Nil stands for a side that
	// has no ID, takes no interrupts and cannot interrupt the peer. The peer then looks at the doorbell words from time
	// to time, even if it takes interrupts of others.
	Interrupt func(id uint32, bit int)
	// Wait waits for interrupts by the peer, each function for one of them, and returns an error when
	// there will be no more. One goroutine calls each. After any interrupt all doorbell words are looked
	// at. If there are none, this side cannot be interrupted. Then it
	// looks at the doorbell words from time to time, see the package comment.
	Wait []func() error
	// Silence is how long the peer's heartbeat may stand still before its session ends, where nobody says when
	// a process ends. It is a multiple of Tick, at least five; 0 stands for the package's Silence.
	Silence time.Duration
	// Told is set if somebody says when this side's process ends: the peer's Gone, if it has one.
	Told bool
	// Gone reports whether the peer whose ID is id has gone for good, though its page does not
	// say so, and whether that is known. It is called after interrupts and at each tick. While it knows, and the
	// peer is Told, silence does not end a session. Nil stands for a function that knows nothing.
	Gone func(id uint32) (gone, known bool)
	// Former reports whether another process that was Told, and had this end and an ID, has gone. Nil stands for a
	// function that reports false.
	Former func(id uint32) bool
	// Down is closed when the link to the peer's memory has ended. It ends a session at once, and then
	// Open fails. Nil stands for memory that stays.
	Down <-chan struct{}
	// Stop is called once, when the attachment is closed and none of its sessions reaches the
	// memory. It makes Wait return an error.
	Stop func()
}

// Attached is what an attachment of [Reattach] is attached to for a while.
type Attached struct {
	ntb.Attachment
	Window   int         // bytes of a session's windows, or the most that they can have
	Replaced func() bool // reports whether there is other memory now
}

// deadTicks returns after how many ticks without a heartbeat a session is dead. The first of them may come up to a tick after
// the last heartbeat.
func (c *Config) deadTicks() int { return max(5, int(cmp.Or(c.Silence, Silence)/Tick)) - 1 }

// ErrReplaced reports that there is other memory now than what an end is attached to.
var ErrReplaced = errors.New("ntbfixed: the memory was replaced")
