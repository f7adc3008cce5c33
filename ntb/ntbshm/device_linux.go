//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/shm/gate"
	"github.com/ntbnet/ntbnet/internal/shm/membarrier"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

const (
	scratchpads = 16
	spadBytes   = 4 * scratchpads
	ringsAt     = 64 // ring words, 4 bytes for each doorbell bit
)

// States of a device. They only grow.
const (
	linkUp int32 = iota
	linkDown
	closed
)

var _ ntb.Device = (*device)(nil)

type device struct {
	caps     ntb.Caps   // immutable
	inbound  []byte     // immutable; own[headerSize:]
	outbound ntb.Window // immutable

	// These are mapped until Close has shut the gate. The peer writes own, this
	// side peer.
	own, peer  []byte
	peerHeader ntb.Window // scratchpads and ring words

	bells     []bell                      // own doorbells
	rings     [maxDoorbells]atomic.Uint32 // how often each of the peer's doorbells was rung
	peerBells []int                       // ringing ends of the peer's doorbells, open until Close has shut the gate
	gate      gate.Gate                   // guards own, peer and peerBells

	cable *unixsock.Conn
	state atomic.Int32  // linkUp, linkDown or closed
	ended chan struct{} // closed when waitEnd has returned
	once  sync.Once     // for Close
	err   error         // result of Close; guarded by once
}

// bell is an own doorbell bit.
type bell struct {
	file *os.File // the waiting end, in Go's poller
	conn syscall.RawConn
	rung func(uintptr) bool // reports whether the bit was rung; used by the one goroutine that waits
}

// connect exchanges files with the peer. On error it leaves nothing open.
func connect(cable *unixsock.Conn, o Options) (_ *device, err error) {
	d := &device{cable: cable, gate: gate.New(), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}

	mine := message{membarrier: membarrier.Register(), window: int64(o.Window), doorbells: o.Doorbells}
	f, err := d.makeHalf(o)
	if err != nil {
		_, _ = cable.Write(noHalf(err)) // or the peer finds that this side hangs up
		return nil, &HalfError{Err: err}
	}
	sent := send(cable, mine, f)
	f.close() // the ringing ends belong to the peer
	if sent != nil && !errors.Is(sent, ntb.ErrLinkDown) {
		return nil, sent
	}
	// A peer that has hung up may have said why before.
	theirs, err := d.accept()
	if half := new(HalfError); errors.As(err, &half) || sent == nil && err != nil {
		return nil, err
	}
	if sent != nil {
		return nil, sent
	}
	if theirs.doorbells != mine.doorbells {
		return nil, fmt.Errorf("%w: it has %d doorbells, this side %d", ErrBadPeer, theirs.doorbells, mine.doorbells)
	}
	if err := cable.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("ntbshm: clear the cable's deadline: %w", err)
	}

	d.caps = ntb.Caps{
		Backend: "shm", Doorbells: o.Doorbells, Scratchpads: scratchpads, Coherent: true, Reclaims: true,
		// Both sides know both flags, so they agree.
		FenceToLook: !(mine.membarrier && theirs.membarrier),
	}
	d.inbound = d.own[headerSize:len(d.own):len(d.own)]
	d.outbound = ntb.MappedWindow(d.peer[headerSize:], ntb.Cacheable)
	d.peerHeader = ntb.MappedWindow(d.peer[:headerSize], ntb.Cacheable)
	go d.waitEnd()
	return d, nil
}

// makeHalf makes this side's memory and doorbells, and returns what the peer gets of them.
func (d *device) makeHalf(o Options) (_ files, err error) {
	f, waits, err := makeFiles(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	for _, fd := range waits {
		d.bells = append(d.bells, bell{file: os.NewFile(uintptr(fd), "doorbell")})
	}
	if d.own, err = mapFile(f[0], int64(o.Window)); err != nil {
		return nil, err
	}
	if err := tryRoom(f, int64(o.Window)); err != nil {
		return nil, err
	}
	for i := range d.bells {
		// A file that the poller did not accept has no deadlines. To wait for it
		// would fail.
		if err := d.bells[i].file.SetReadDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("ntbshm: doorbell cannot be polled: %w", err)
		}
		if d.bells[i].conn, err = d.bells[i].file.SyscallConn(); err != nil {
			return nil, fmt.Errorf("ntbshm: doorbell: %w", err)
		}
		d.bells[i].rung = d.newRung(i)
	}
	return f, nil
}

// accept receives the peer's memory and doorbells.
func (d *device) accept() (message, error) {
	theirs, f, err := receive(d.cable)
	if err != nil {
		return message{}, err
	}
	d.peerBells = f[1:]
	d.peer, err = mapFile(f[0], theirs.window)
	unix.Close(f[0]) // memory, which does not wait
	if err != nil {
		return message{}, &HalfError{Err: err}
	}
	return theirs, nil
}

// waitEnd waits until the cable is closed. The peer sends nothing after its files. If
// it does, that ends the link too.
func (d *device) waitEnd() {
	defer close(d.ended)
	_ = d.cable.Wait()
	d.takeDown()
}

// takeDown ends the link on both sides and wakes the goroutines that wait for a
// doorbell. It stores the state first, so that they find it.
func (d *device) takeDown() {
	d.state.CompareAndSwap(linkUp, linkDown)
	d.cable.Shutdown()
	for i := range d.bells {
		_ = d.bells[i].file.SetReadDeadline(time.Unix(1, 0))
	}
}

func (d *device) Caps() ntb.Caps       { return d.caps }
func (d *device) Inbound() []byte      { return d.inbound }
func (d *device) Outbound() ntb.Window { return d.outbound }
func (d *device) LinkUp() bool         { return d.state.Load() == linkUp }

func (d *device) DMA(int) ntb.DMAChannel { panic("ntbshm: no DMA channels") }

func (d *device) Spad(i int) uint32 {
	checkSpad(i)
	if !d.LinkUp() || !d.gate.Enter() {
		return ^uint32(0)
	}
	v := ntb.Load32(d.own[:spadBytes], 4*i)
	d.gate.Leave()
	return v
}

func (d *device) SetPeerSpad(i int, v uint32) {
	lock.Device()
	checkSpad(i)
	if !d.LinkUp() || !d.gate.Enter() {
		return
	}
	d.peerHeader.Publish32(4*i, v)
	d.gate.Leave()
}

// checkSpad is called before the gate is entered, because a panic inside would
// leave the call counted.
func checkSpad(i int) {
	if i < 0 || i >= scratchpads {
		panic(fmt.Sprintf("ntbshm: scratchpad %d of %d", i, scratchpads))
	}
}

func (d *device) Disable() { d.takeDown() }

// Close releases everything. It waits for the goroutine of waitEnd, and
// for calls that are under way.
func (d *device) Close() error {
	d.once.Do(func() {
		d.state.Store(closed)
		d.takeDown()
		<-d.ended
		d.gate.ShutAndWait()
		d.err = d.release()
	})
	return d.err
}

// release closes the files and unmaps the memory. Closing a doorbell waits for its
// waiter.
func (d *device) release() (err error) {
	for i := range d.bells {
		d.bells[i].file.Close()
	}
	unixsock.Discard(d.cable.UID(), d.peerBells...)
	d.cable.Close()
	for _, mem := range [][]byte{d.own, d.peer} {
		if mem == nil {
			continue
		}
		if e := unix.Munmap(mem); e != nil && err == nil {
			err = fmt.Errorf("ntbshm: unmap window: %w", e)
		}
	}
	return err
}
