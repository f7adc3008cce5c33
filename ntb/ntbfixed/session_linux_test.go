//go:build linux && (amd64 || arm64)

package ntbfixed

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The other side is in the same memory, so a session that reaches it after its end would be
// seen there.
func TestStoresAfterTheEndOfASessionReachNobody(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 4<<10)
	x, y := open(t, a, b)
	defer x.Close()
	defer y.Close()
	memory := b.(*attachment).config.Own
	raw, err := mapMemory(memory, nil)
	require.NoError(t, err)
	defer raw.unmap()
	out := x.Outbound()
	out.Publish64(0, 1)
	require.EqualValues(t, 1, ntb.Load64(raw.mem, PageSize))
	x.Disable()
	out.Publish64(0, 2)
	require.EqualValues(t, 1, ntb.Load64(raw.mem, PageSize))
}

// Memory at other addresses is the window's until the session ends, and then what it was.
func TestInboundMemoryIsMappedOverOther(t *testing.T) {
	leak.Check(t)
	for name, end := range map[string]func(x, y ntb.Device){
		"own":    func(x, _ ntb.Device) { x.Disable() },
		"peer's": func(x, y ntb.Device) { y.Disable(); require.ErrorIs(t, x.WaitDoorbell(0), ntb.ErrLinkDown) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, 8*PageSize)
			x, y := open(t, a, b)
			heap, err := unix.Mmap(-1, 0, 4*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			require.NoError(t, err)
			defer unix.Munmap(heap)
			at := heap[PageSize : 3*PageSize]
			m := x.Caps().Mapper
			require.Panics(t, func() { m.MapAt(7*PageSize, at) })
			_, err = m.MapAt(100, at)
			require.ErrorIs(t, err, unix.EINVAL)
			release, err := m.MapAt(5*PageSize, at)
			require.NoError(t, err)
			out := y.Outbound()
			out.Publish64(5*PageSize+8, 7)
			require.EqualValues(t, 7, ntb.Load64(at, 8))
			at[100] = 9
			require.EqualValues(t, 9, x.Inbound()[5*PageSize+100])

			end(x, y)
			next, nexty := open(t, a, b)
			require.EqualValues(t, 7, ntb.Load64(at, 8))
			at[101] = 9
			require.Zero(t, bytes.Trim(next.Inbound(), "\x00"), "a session begins with zeros, and nobody else stores there")
			out = nexty.Outbound()
			out.Publish64(5*PageSize+8, 8)
			require.EqualValues(t, 7, ntb.Load64(at, 8))
			_, err = m.MapAt(5*PageSize, at)
			require.ErrorIs(t, err, ntb.ErrLinkDown)
			release()
			for _, d := range []ntb.Device{x, y, next, nexty} {
				require.NoError(t, d.Close())
			}
			require.Equal(t, []byte{9, 9}, at[100:102])
		})
	}
}

// A peer that has died stores nothing. Its heartbeat ends, and with it the link.
func TestALinkEndsWithoutAHeartbeat(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 4<<10)
	a.(*attachment).config.Silence = time.Second
	x, y := open(t, a, b)
	defer x.Close()
	defer y.Close()
	dead := y.(*session)
	require.NoError(t, dead.peer.scratch()) // from here on it reaches nobody
	ended := make(chan error, 1)
	go func() { ended <- x.WaitDoorbell(0) }()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, ntb.ErrLinkDown)
	case <-time.After(30 * time.Second):
		t.Fatal("the link stays up")
	}
	require.False(t, x.LinkUp())
}

// One of which somebody knows whether its process has ended does not end by silence. What was known is not believed
// of a peer that does not say so, or when those who know have gone.
func TestSilenceOfWhoLives(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 4<<10)
	x, y := &a.(*attachment).config, &b.(*attachment).config
	var gone, known atomic.Bool
	known.Store(true)
	x.Silence, x.Gone = time.Second, func(uint32) (bool, bool) { return gone.Load(), known.Load() }
	y.Told, y.Named = true, true
	for name, end := range map[string]func(){
		"gone":         func() { gone.Store(true) },
		"nobody knows": func() { known.Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			gone.Store(false)
			known.Store(true)
			s, other := open(t, a, b)
			defer s.Close()
			defer other.Close()
			require.NoError(t, other.(*session).peer.scratch()) // from here on it reaches nobody
			time.Sleep(2 * time.Second)
			require.True(t, s.LinkUp())
			end()
			require.ErrorIs(t, s.WaitDoorbell(0), ntb.ErrLinkDown)
		})
	}
}

// Stop releases what Gone uses, so a session that is just asking has an answer first.
func TestAnAttachmentStopsAfterItsSessions(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 4<<10)
	c := &a.(*attachment).config
	stop, asks, stopped := c.Stop, make(chan struct{}), make(chan struct{})
	c.Stop = func() { close(stopped); stop() }
	var once sync.Once
	early := false
	c.Gone = func(uint32) (gone, known bool) {
		once.Do(func() {
			close(asks)
			select {
			case <-stopped:
				early = true
			case <-time.After(100 * time.Millisecond): // long enough for a Close that does not wait
			}
		})
		return false, true
	}
	x, y := open(t, a, b)
	defer x.Close()
	defer y.Close()
	<-asks
	require.NoError(t, a.Close())
	require.False(t, early)
}

// An interrupt may be lost. Its doorbell is found by the next look, at a heartbeat.
func TestADoorbellWhoseInterruptIsLostIsFound(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 4<<10)
	var lost atomic.Bool
	raise := a.(*attachment).config.Interrupt
	a.(*attachment).config.Interrupt = func(id uint32, bit int) {
		if !lost.Load() {
			raise(id, bit)
		}
	}
	x, y := open(t, a, b)
	defer x.Close()
	defer y.Close()
	lost.Store(true)
	for bit := range doorbells { // the first may be found by what is left of the bring-up
		rung := make(chan error, 1)
		go func() { rung <- y.WaitDoorbell(bit) }()
		x.RingDoorbell(bit)
		select {
		case err := <-rung:
			require.NoError(t, err)
		case <-time.After(30 * time.Second):
			t.Fatal("a doorbell is lost with its interrupt")
		}
	}
	lost.Store(false)
}

// A side that takes interrupts looks by itself while the peer cannot interrupt it. Both find what the other one rings, also in
// the session after.
func TestAPeerThatCannotInterrupt(t *testing.T) {
	leak.Check(t)
	c, b := pair(t, 4<<10)
	config := c.(*attachment).config
	a, err := Attach(Config{Own: config.Own, Peer: config.Peer, Stop: func() {}})
	require.NoError(t, err)
	defer a.Close()
	for range 2 {
		x, y := open(t, a, b)
		require.True(t, y.(*session).page.peerMute())
		require.False(t, x.(*session).page.peerMute())
		beats := func() uint64 { return ntb.Load64(x.(*session).own.mem, heartbeatAt) & 0xffffffff } // of y
		before := beats()
		const rings = 100
		for range rings {
			x.RingDoorbell(3)
			require.NoError(t, y.WaitDoorbell(3))
			y.RingDoorbell(5)
			require.NoError(t, x.WaitDoorbell(5))
		}
		require.Less(t, beats()-before, uint64(rings), "y finds a doorbell at its heartbeats only")
		x.Close()
		y.Close()
	}
}

// The two sides map different parts of the memory. Each window is as large as both can use.
func TestWindowsOfDifferentSizes(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 64<<10)
	x, y := &a.(*attachment).config, &b.(*attachment).config
	x.Own.Len = 3 * PageSize
	x.Peer.Len = 9 * PageSize
	y.Own.Len = 5 * PageSize
	for range 2 {
		dx, dy := open(t, a, b)
		require.Equal(t, [2]int{2 * PageSize, 4 * PageSize}, [2]int{len(dx.Inbound()), len(dy.Inbound())})
		outX, outY := dx.Outbound(), dy.Outbound()
		require.Equal(t, [2]int{4 * PageSize, 2 * PageSize}, [2]int{outX.Len(), outY.Len()})
		outX.Publish64(4*PageSize-8, 7)
		require.EqualValues(t, 7, ntb.Load64(dy.Inbound(), 4*PageSize-8))
		require.NoError(t, errors.Join(dx.Close(), dy.Close()))
	}
}

// The system says that the memory has become another one's. The peer, which knows nothing of it, goes on.
func TestALinkEndsWithItsMemory(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 4<<10)
	down := make(chan struct{})
	config := &a.(*attachment).config
	config.Down, config.Revocable, config.Zeros = down, true, true
	x, y := open(t, a, b)
	defer x.Close()
	defer y.Close()
	close(down)
	require.ErrorIs(t, x.WaitDoorbell(0), ntb.ErrLinkDown)
	require.False(t, x.(*session).Gone(), "what it received is still there")
	x.Order()
	_, err := a.Open(t.Context())
	require.ErrorIs(t, err, ntb.ErrLinkDown)
}

func TestMemoryMustBePages(t *testing.T) {
	for _, n := range []int{0, PageSize, 2*PageSize + 1} {
		_, err := Attach(Config{Own: Memory{Len: n}, Peer: Memory{Len: 2 * PageSize}})
		require.ErrorContains(t, err, "want a multiple of 4096 from 8192 on")
	}
}

// Two processes were given one end of a bridge. The first one keeps it.
func TestTwoAttachmentsOfOneEnd(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 4<<10)
	config := a.(*attachment).config
	stopped := make(chan struct{})
	config.Wait = []func() error{func() error { <-stopped; return errStopped }}
	config.Stop = func() { close(stopped) }
	second, err := Attach(config)
	require.NoError(t, err)
	defer second.Close()
	x, y := open(t, a, b)
	defer y.Close()
	for range 3 {
		_, err := second.Open(t.Context())
		require.ErrorIs(t, err, ntb.ErrInUse)
		require.True(t, x.LinkUp())
		require.True(t, y.LinkUp())
	}
	require.NoError(t, x.Close())
	x, y2 := open(t, second, b)
	defer y2.Close()
	defer x.Close()
	_, err = a.Open(t.Context())
	require.ErrorIs(t, err, ntb.ErrInUse)
}

// A session keeps what its memory holds when it ends. If the file is cut and made longer again meanwhile,
// part of what is kept may be zeros, and of what others read at that time. Then the session says that its
// memory has gone.
func TestAFileIsCutWhileASessionEnds(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 256<<10)
	config := &b.(*attachment).config
	config.Revocable, config.Zeros = true, true
	size := 2 * int64(config.Own.Len)
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(size))
	require.NoError(t, unix.Dup3(int(f.Fd()), config.Own.FD, unix.O_CLOEXEC))
	ones := bytes.Repeat([]byte{1}, config.Own.Len-PageSize)
	read := make([]byte, len(ones))
	for round := range 400 {
		x, y := open(t, a, b)
		s := y.(*session)
		copy(s.inbound, ones)
		cut, down := make(chan error, 1), make(chan struct{})
		go func() { cut <- errors.Join(f.Truncate(0), f.Truncate(size)) }()
		go func() { y.Disable(); close(down) }()
		for over := false; !over; {
			select {
			case <-down:
				over = true // once more, what is kept
			default:
			}
			copy(read, s.inbound)
			require.True(t, s.Gone() || bytes.Equal(read, ones), "round %d", round)
		}
		require.NoError(t, <-cut)
		require.NoError(t, y.Close())
		require.NoError(t, x.Close())
	}
}

// Whatever a peer stores into a word of the header page, the session goes on, or ends, and another one begins. What it
// does not is to stay up while its memory counts as gone.
func TestNoWordOfTheHeaderPageStallsALink(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, 4<<10)
	for _, end := range []ntb.Attachment{a, b} {
		config := &end.(*attachment).config
		config.Revocable, config.Zeros = true, true
	}
	raw, err := mapMemory(b.(*attachment).config.Own, nil)
	require.NoError(t, err)
	defer raw.unmap()
	page := ntb.MappedWindow(raw.mem, ntb.Cacheable)
	again := func(ctx context.Context) (d ntb.Device, err error) { // as a fabric does: the word may be there until the peer stores
		for d, err = b.Open(ctx); err != nil && ctx.Err() == nil; d, err = b.Open(ctx) {
			time.Sleep(time.Millisecond)
		}
		return d, err
	}
	for off := 0; off <= markAt; off += 8 {
		for _, word := range []uint64{0, ^uint64(0), 1 << (off % 64), 0x9e3779b97f4a7c15 * uint64(off+1)} {
			x, y := openBy(t, a.Open, again)
			rung := make(chan error, 1)
			go func() { rung <- y.WaitDoorbell(1) }()
			page.Publish64(off, word)
			x.RingDoorbell(1)
			require.Eventually(t, func() bool { return !y.LinkUp() || len(rung) == 1 && !y.(*session).Gone() },
				30*time.Second, time.Millisecond, "%#x at %d", word, off)
			require.NoError(t, x.Close())
			require.NoError(t, y.Close())
			<-rung
		}
	}
}
