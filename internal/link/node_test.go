package link

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// echo is a service that records messages.
type echo struct {
	mu       sync.Mutex
	messages [][]byte
	downs    []error
	got      chan struct{}
}

func newEcho() *echo { return &echo{got: make(chan struct{}, 1)} }

func (e *echo) Open(*Peer) Handler { return e }

func (e *echo) Message(m []byte) error {
	e.mu.Lock()
	e.messages = append(e.messages, append([]byte(nil), m...))
	e.mu.Unlock()
	e.wake()
	return nil
}

func (e *echo) Down(err error) {
	e.mu.Lock()
	e.downs = append(e.downs, err)
	e.mu.Unlock()
	e.wake()
}

func (e *echo) wake() {
	select {
	case e.got <- struct{}{}:
	default:
	}
}

func (e *echo) wait(t *testing.T, cond func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		e.mu.Lock()
		ok := cond()
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-e.got:
		case <-deadline:
			t.Fatal("did not happen within 60 s")
		}
	}
}

// join makes two nodes with a link between them.
func join(t *testing.T, a, b ntb.Device, sa, sb Service) (pa, pb *Peer) {
	t.Helper()
	na, nb := NewNode(MakeID(1, 1)), NewNode(MakeID(1, 2))
	na.Register(ServiceSDP, sa)
	nb.Register(ServiceSDP, sb)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	ch := make(chan *Peer)
	go func() {
		p, err := nb.Up(ctx, b)
		if err != nil {
			t.Error(err)
		}
		ch <- p
	}()
	pa, err := na.Up(ctx, a)
	require.NoError(t, err)
	pb = <-ch
	require.NotNil(t, pb)
	t.Cleanup(func() { na.Close(); nb.Close() })
	return pa, pb
}

func TestBringUpExchangesIDs(t *testing.T) {
	a, b := ntbmem.Pair(1 << 20)
	pa, pb := join(t, a, b, newEcho(), newEcho())
	require.Equal(t, MakeID(1, 2), pa.ID())
	require.Equal(t, MakeID(1, 1), pb.ID())
	require.True(t, pa.Up())
	require.Equal(t, len(pa.Local()), func() int { w := pb.Remote(); return w.Len() }())
}

func TestBringUpWaitsForALatePeer(t *testing.T) {
	a, b := ntbmem.Pair(1 << 20)
	na, nb := NewNode(MakeID(1, 1)), NewNode(MakeID(1, 2))
	defer na.Close()
	defer nb.Close()
	up := make(chan error)
	go func() { _, err := na.Up(context.Background(), a); up <- err }()
	time.Sleep(50 * time.Millisecond)
	_, err := nb.Up(context.Background(), b)
	require.NoError(t, err)
	require.NoError(t, <-up)
}

func TestBringUpEndsWithItsContext(t *testing.T) {
	a, _ := ntbmem.Pair(1 << 20)
	n := NewNode(MakeID(1, 1))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := n.Up(ctx, a)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	n.Close()
}

// lateSpad loses a scratchpad that this side writes, for some time.
type lateSpad struct {
	ntb.Device
	i     int
	until time.Time
}

func (d lateSpad) SetPeerSpad(i int, v uint32) {
	if i != d.i || time.Now().After(d.until) {
		d.Device.SetPeerSpad(i, v)
	}
}

// What is written while the bridge is being set up vanishes, up to some word. When the words are written
// again, any of them may be the first that is not there yet.
func TestBringUpWaitsForEachWord(t *testing.T) {
	for _, word := range []int{spadID, spadWindow} {
		a, b := ntbmem.Pair(1 << 20)
		join(t, a, lateSpad{b, word, time.Now().Add(50 * time.Millisecond)}, newEcho(), newEcho())
	}
}

func TestBringUpRefusesBadScratchpads(t *testing.T) {
	for name, tc := range map[string]struct {
		spads [5]uint32
		want  error
	}{
		"another version":  {[5]uint32{Magic<<16 | (Version + 1), 7, 1024, 9, 0}, ErrVersion},
		"another protocol": {[5]uint32{0x12345678, 7, 1024, 9, 0}, ErrProtocol},
		"wrong window":     {[5]uint32{Magic<<16 | Version, 7, 77, 9, 0}, ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ntbmem.Pair(1 << 20)
			for i, v := range tc.spads {
				b.SetPeerSpad(i, v)
			}
			n := NewNode(MakeID(1, 1))
			_, err := n.Up(soon(t), a)
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, uint32(Magic<<16|Version), func() uint32 {
				c, d := ntbmem.Pair(1 << 20)
				n := NewNode(MakeID(1, 1))
				d.SetPeerSpad(spadMagic, 0x12345678)
				var word uint32
				_, _ = n.Up(soon(t), &spadSpy{Device: c, word: &word})
				n.Close()
				return word
			}(), "our own version must be visible to the peer before we give up")
			n.Close()
			b.Close()
		})
	}
}

type spadSpy struct {
	ntb.Device
	word *uint32
}

func (s *spadSpy) SetPeerSpad(i int, v uint32) {
	if i == spadMagic {
		*s.word = v
	}
	s.Device.SetPeerSpad(i, v)
}

// Far more messages than the queue holds arrive in order, both ways at once.
func TestSetupMessagesArriveInOrder(t *testing.T) {
	a, b := ntbmem.Pair(1 << 20)
	ea, eb := newEcho(), newEcho()
	pa, pb := join(t, a, b, ea, eb)
	const n = 5000
	var wg sync.WaitGroup
	for _, p := range []*Peer{pa, pb} {
		wg.Go(func() {
			for i := range n {
				m := make([]byte, 4+i%237)
				binary.LittleEndian.PutUint32(m, uint32(i))
				for p.Send(ServiceSDP, m) != nil {
					t.Error("send failed")
					return
				}
			}
		})
	}
	wg.Wait()
	for _, e := range []*echo{ea, eb} {
		e.wait(t, func() bool { return len(e.messages) == n })
		for i, m := range e.messages {
			if len(m) != 4+i%237 || binary.LittleEndian.Uint32(m) != uint32(i) {
				t.Fatalf("message %d is % x", i, m[:4])
			}
		}
	}
}

type counter struct{ c chan Event }

func (c *counter) Notified(e Event) {
	select {
	case c.c <- e:
	default:
	}
}

func TestNotifyReachesTheAttachedObjectOnly(t *testing.T) {
	a, b := ntbmem.Pair(1 << 22)
	pa, pb := join(t, a, b, newEcho(), newEcho())
	objs := make([]*counter, 100)
	for i := range objs {
		objs[i] = &counter{c: make(chan Event, 10)}
		slot, err := pb.Attach(objs[i])
		require.NoError(t, err)
		require.Equal(t, i, slot)
	}
	for _, i := range []int{0, 63, 64, 99} {
		for e := range events {
			pa.Notify(i, e)
			select {
			case got := <-objs[i].c:
				require.Equal(t, e, got)
			case <-time.After(60 * time.Second):
				t.Fatalf("slot %d: %v was not announced", i, e)
			}
		}
	}
	for i, o := range objs {
		require.Empty(t, o.c, "slot %d", i)
	}
	pb.Detach(5)
	slot, err := pb.Attach(objs[5])
	require.NoError(t, err)
	require.Equal(t, 5, slot, "a freed slot is used again")
}

func TestSlotsRunOut(t *testing.T) {
	a, b := ntbmem.Pair(1 << 20)
	pa, _ := join(t, a, b, newEcho(), newEcho())
	for range pa.Slots() {
		_, err := pa.Attach(&counter{})
		require.NoError(t, err)
	}
	_, err := pa.Attach(&counter{})
	require.ErrorIs(t, err, ErrNoSlot)
}

func TestPollFindsNotificationsWithoutDoorbells(t *testing.T) {
	a, b := ntbmem.Pair(1 << 20)
	pa, pb := join(t, &mute{Device: a}, b, newEcho(), newEcho())
	obj := &counter{c: make(chan Event, 10)}
	slot, err := pb.Attach(obj)
	require.NoError(t, err)
	pa.bridge.Device.(*mute).muted = true
	for i := range cap(obj.c) {
		pa.Notify(slot, Data)
		// The link's goroutine may still be looking, for a doorbell of the bring-up.
		require.Eventually(t, func() bool { pb.Poll(); return len(obj.c) == i+1 }, 60*time.Second, time.Millisecond)
	}
	require.False(t, pb.Pending())
}

type mute struct {
	ntb.Device
	muted bool
}

func (m *mute) RingDoorbell(bit int) {
	if !m.muted {
		m.Device.RingDoorbell(bit)
	}
}

func TestWhatWasSentBeforeTheEndIsHandled(t *testing.T) {
	a, b := ntbmem.Pair(1 << 20)
	eb := newEcho()
	pa, pb := join(t, a, b, newEcho(), eb)
	pa.node.Close()
	<-pb.Done()
	require.Len(t, eb.downs, 1)
	require.ErrorIs(t, eb.downs[0], ErrDown)
	require.ErrorIs(t, pa.Err(), ErrClosed)

	a, b = ntbmem.Pair(1 << 20)
	eb = newEcho()
	pa, pb = join(t, a, b, newEcho(), eb)
	for range 20 {
		require.NoError(t, pa.Send(ServiceSDP, []byte("last words")))
	}
	pa.node.Close()
	<-pb.Done()
	require.Len(t, eb.messages, 20)
	require.ErrorIs(t, pb.Send(ServiceSDP, nil), ErrDown)
}

func TestHostileSetupMessagesEndTheLink(t *testing.T) {
	for name, forge := range map[string]func(m []byte){
		"length":      func(m []byte) { binary.LittleEndian.PutUint16(m[4:], 241) },
		"service":     func(m []byte) { m[6] = 7 },
		"big service": func(m []byte) { m[6] = 255 },
		"kind":        func(m []byte) { m[7] = 9 },
		"source":      func(m []byte) { m[8]++ },
		"destination": func(m []byte) { m[12]++ },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ntbmem.Pair(1 << 20)
			pa, pb := join(t, a, b, newEcho(), newEcho())
			m := make([]byte, setupSize)
			binary.LittleEndian.PutUint32(m, 1)
			m[6], m[7] = ServiceSDP, setupKind
			binary.LittleEndian.PutUint32(m[8:], uint32(pa.node.id))
			binary.LittleEndian.PutUint32(m[12:], uint32(pb.node.id))
			forge(m)
			pa.out.Write(offSetup+8, m[8:])
			pa.out.Publish64(offSetup, binary.LittleEndian.Uint64(m))
			pa.announce()
			<-pb.Done()
			require.ErrorIs(t, pb.Err(), ErrProtocol)
		})
	}
	// A message whose number is overwritten before it is read would be waited for without an end.
	for name, number := range map[string]uint32{"no number": 0, "a number of no message": 77} {
		t.Run(name, func(t *testing.T) {
			a, b := ntbmem.Pair(1 << 20)
			eb := newEcho()
			pa, pb := join(t, a, b, newEcho(), eb)
			for range setupSlots {
				require.NoError(t, pa.Send(ServiceSDP, []byte("x")))
			}
			require.Eventually(t, func() bool { return ntb.Load32(pa.in, offSetupCredit) == setupSlots }, 30*time.Second, time.Millisecond)
			pa.out.Publish32(offSetup, number)
			pa.announce()
			select {
			case <-pb.Done():
			case <-time.After(30 * time.Second):
				t.Fatal("the link is up")
			}
			require.ErrorIs(t, pb.Err(), ErrProtocol)
		})
	}
	t.Run("credit", func(t *testing.T) {
		a, b := ntbmem.Pair(1 << 20)
		pa, pb := join(t, a, b, newEcho(), newEcho())
		pa.out.Publish32(offSetupCredit, 1000)
		_ = pb.Send(ServiceSDP, []byte("x"))
		<-pb.Done()
		require.ErrorIs(t, pb.Err(), ErrProtocol)
	})
}

func TestClosedNodeRefusesLinks(t *testing.T) {
	a, _ := ntbmem.Pair(1 << 20)
	n := NewNode(MakeID(1, 1))
	n.Close()
	_, err := n.Up(context.Background(), a)
	require.True(t, errors.Is(err, ErrClosed))
}

// A peer that writes anything anywhere in its window neither crashes this process
// nor makes it read outside of the window.
func FuzzHostileWindow(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 3, 4}, uint16(0))
	f.Add([]byte{1, 0, 0, 0, 241, 0, 1, 1}, uint16(offSetup>>3))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		a, b := ntbmem.Pair(MinWindow)
		pa, pb := join(t, a, b, newEcho(), newEcho())
		obj := &counter{c: make(chan Event, 1)}
		_, err := pb.Attach(obj)
		if err != nil {
			t.Fatal(err)
		}
		out := pa.out
		off := int(at) * 8 % (MinWindow - 8)
		for len(data) >= 8 && off+8 <= MinWindow {
			out.Publish64(off, binary.LittleEndian.Uint64(data))
			data, off = data[8:], off+8
		}
		pa.announce()
		pb.Poll()
		_ = pb.Send(ServiceSDP, []byte("still alive or cleanly down"))
	})
}
