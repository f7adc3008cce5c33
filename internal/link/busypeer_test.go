package link

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// busy is a peer that stores more at each look. The goroutine that looks calls it,
// so that no look finds less than the one before.
type busy struct {
	*echo
	out    ntb.Window // the window that the peer stores to
	number uint32
	on     atomic.Bool
	looks  atomic.Uint32
}

func (b *busy) Open(*Peer) Handler { return b }

// Message stores another message.
func (b *busy) Message(m []byte) error {
	if n := binary.LittleEndian.Uint32(m); b.on.Load() {
		b.message(n + 1)
	}
	b.looks.Add(1)
	return nil
}

// message stores the message with that number, from node 1.2 to node 1.1.
func (b *busy) message(n uint32) {
	off := offSetup + int((n-1)%setupSlots)*setupSize
	b.out.Store64(off+8, uint64(MakeID(1, 2))|uint64(MakeID(1, 1))<<32)
	b.out.Store64(off+setupHeader, uint64(n))
	b.out.Publish64(off, uint64(n)|4<<32|ServiceSDP<<48|setupKind<<56)
	b.out.Publish32(offMaster, 1<<31+n)
}

// Notified notifies again.
func (b *busy) Notified(Event) {
	if b.on.Load() {
		b.notify()
	}
	b.looks.Add(1)
}

func (b *busy) notify() {
	b.number++
	b.out.Publish32(offNotes, b.number)
	b.out.Publish32(offSummary, b.number)
	b.out.Publish32(offMaster, b.number)
}

// A peer may go on storing for ever, before the link goes down and after it.
func TestALinkEndsWhosePeerGoesOnStoring(t *testing.T) {
	for name, begin := range map[string]func(b *busy){
		"messages":      func(b *busy) { b.message(1) },
		"notifications": (*busy).notify,
	} {
		for _, whose := range []string{"ours", "theirs"} {
			t.Run(name+", the end is "+whose, func(t *testing.T) {
				leak.Check(t)
				x, y := ntbmem.Pair(1 << 20)
				b := &busy{echo: newEcho(), out: y.Outbound()}
				pa, pb := join(t, x, y, b, newEcho())
				slot, err := pa.Attach(b)
				require.NoError(t, err)
				require.Zero(t, slot)
				b.on.Store(true)
				begin(b)
				y.RingDoorbell(doorbellBit)
				ends(t, "the first look", func() {
					for b.looks.Load() < 10*setupSlots {
						time.Sleep(time.Millisecond)
					}
				})
				if whose == "ours" {
					ends(t, "Fail", func() { pa.Fail(ErrClosed) })
				} else {
					ends(t, "Fail", func() { pb.Fail(ErrClosed) })
				}
				ends(t, "the link", func() { <-pa.Done() })
				require.Len(t, b.downs, 1)
				ends(t, "Close", pa.node.Close)
			})
		}
	}
}

// Other goroutines call Poll, which needs the same lock. The peer that goes on
// storing must not keep it from them.
func TestAPeerThatGoesOnStoringLeavesTheLock(t *testing.T) {
	leak.Check(t)
	x, y := ntbmem.Pair(1 << 20)
	b := &busy{echo: newEcho(), out: y.Outbound()}
	pa, _ := join(t, x, y, b, newEcho())
	_, err := pa.Attach(b)
	require.NoError(t, err)
	b.on.Store(true)
	b.notify()
	y.RingDoorbell(doorbellBit)
	ends(t, "a look", func() {
		for b.looks.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		pa.looks.mu.Lock()
		defer pa.looks.mu.Unlock()
	})
}

// The words that announce something may change all the time, with nothing behind
// them.
func TestALinkEndsWhosePeerChangesItsMasterWord(t *testing.T) {
	leak.Check(t)
	x, y := ntbmem.Pair(1 << 20)
	e := newEcho()
	pa, _ := join(t, x, y, e, newEcho())
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 2 {
		wg.Go(func() {
			out := y.Outbound()
			for n := uint32(0); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				out.Publish32(offMaster, n)
				out.Publish32(offSummary+4*i, n)
				out.Publish32(offSetupBlocked, n)
				y.RingDoorbell(doorbellBit)
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	pa.Fail(ErrClosed)
	ends(t, "the link", func() { <-pa.Done() })
	ends(t, "Close", pa.node.Close)
	close(stop)
	wg.Wait()
	require.Len(t, e.downs, 1)
}
