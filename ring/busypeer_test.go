package ring

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
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

func (b *busy) Open(*Peer) Session { return b }

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
func (b *busy) Notified(int) {
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

// ends requires that f returns.
func ends(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s has not ended within 30 s", what)
	}
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
		pa.pollMu.Lock()
		defer pa.pollMu.Unlock()
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

// flooded returns a relay whose left neighbour stores another frame for each that is
// taken, all of them for dst.
func flooded(t *testing.T, dst ID) (m *relay, l, r *Link) {
	t.Helper()
	o := small(3)
	o.Topology = Line
	m = newMiddle(t, o, 0)
	m.f.kind, m.f.dst = frameAck, dst
	m.f.encode(&m.header)
	m.n.router.trace = func(_ frame, sent bool) {
		// The queue is full again as soon as a slot is free.
		for !sent && m.hop < m.in.next.Load()+uint64(m.o.Slots)-1 {
			m.put()
		}
	}
	l, r = m.n.router.sides[Left].Load(), m.n.router.sides[Right].Load()
	for range o.Slots {
		m.put()
	}
	l.start()
	r.start()
	return m, l, r
}

func TestALinkEndsWhoseNeighbourGoesOnStoring(t *testing.T) {
	leak.Check(t)
	m, l, r := flooded(t, MakeID(2, 1))
	ends(t, "the first look", func() {
		for l.in[0].next.Load() < 100 {
			time.Sleep(time.Millisecond)
		}
	})
	l.Close()
	ends(t, "the link", func() { <-l.Done() })
	r.Close()
	ends(t, "the other link", func() { <-r.Done() })
	l.release() // that of the direct peers, of which there are none
	r.release()
	ends(t, "Close", m.n.Close)
}

// Frames that wait for a link that ends are dropped. The neighbour that sent them
// goes on.
func TestALinkEndsThatANeighbourGoesOnStoringFor(t *testing.T) {
	leak.Check(t)
	m, l, r := flooded(t, MakeID(3, 1))
	ends(t, "filling the right link", func() {
		for !l.in[0].blocked.Load() {
			time.Sleep(time.Millisecond)
		}
	})
	r.Close()
	ends(t, "the link", func() { <-r.Done() })
	l.Close()
	ends(t, "the other link", func() { <-l.Done() })
	l.release()
	r.release()
	ends(t, "Close", m.n.Close)
}

// eager is a source that has a frame for each turn, as long as it is switched on.
type eager struct {
	greedy
	on atomic.Bool
}

func (e *eager) serve(o *outLane) {
	if e.on.Load() {
		o.own(&e.f, nil, e, true)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.waiting = append(o.waiting, e) // as if there was no room for the next frame
		o.waits.Store(true)
	}
}

// credited is a device whose neighbour gives credit for each frame at once.
type credited struct {
	ntb.Device
	give func()
}

func (c credited) RingDoorbell(bit int) { c.give(); c.Device.RingDoorbell(bit) }

// A lane always has room, and always a source that waits for it. It does not keep
// callers of poll, and ends with its link.
func TestALaneWithRoomForEverKeepsNobody(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology, o.Slots = Line, 4
	m := newMiddle(t, o, 0)
	r := m.n.router.sides[Right].Load()
	var arm uint32
	r.dev = credited{r.dev, func() { // called with the lane's lock, before the next frame
		arm++
		m.to.Publish32(laneDataArm, arm)
		m.to.Publish32(laneCredit, uint32(m.out.hop-1))
	}}
	m.to.Publish32(laneDataArm, 1<<31) // a doorbell for each frame
	e := &eager{greedy: greedy{f: frame{kind: frameAck, src: m.n.id, dst: MakeID(3, 1), hops: 3}}}
	e.on.Store(true)
	m.out.waiting = append(m.out.waiting, e)
	m.out.waits.Store(true)
	ends(t, "poll", m.out.poll)
	ends(t, "poll, by another", m.out.poll)
	ends(t, "that others go on", func() {
		for was := m.sent(); m.sent() < was+1000; {
			time.Sleep(time.Millisecond)
		}
	})
	r.Close()
	ends(t, "the lane", func() {
		for m.out.polling.Load() {
			time.Sleep(time.Millisecond)
		}
	})
	m.close()
}

func (m *relay) sent() uint64 {
	m.out.mu.Lock()
	defer m.out.mu.Unlock()
	return m.out.stats.ownFrames
}
