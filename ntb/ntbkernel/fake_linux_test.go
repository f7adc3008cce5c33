//go:build amd64 || arm64

package ntbkernel

import (
	"sync"
	"testing"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fake stands for two machines whose modules have one bridge. What is mapped is a file of its own part for each
// generation, which becomes zeros at the generation's end.
type fake struct {
	t         *testing.T
	fd        int
	size      [2]int // of each side's memory
	doorbells int
	combining bool

	mu    sync.Mutex
	state State // but for what differs on the two sides; guarded by mu
	sides [2]side
}

// side is one side of a fake. The fake's mu guards it.
type side struct {
	gone   bool
	peer   uint32
	node   int
	events []int32 // duplicates; nil while the node is not open
	rung   [maxDoorbells]int
}

// generationLen is the part of the file for a generation.
const generationLen = 64 << 20

func newFake(t *testing.T, size int) *fake {
	fd, err := memfd.Create("ntbnet-kernel", 1<<40)
	require.NoError(t, err)
	f := &fake{t: t, fd: fd, size: [2]int{size, size}, doorbells: 3, combining: true}
	for i := range f.sides {
		f.sides[i].node = i + 1
		f.sides[i].peer = moduleWord | moduleABI
	}
	t.Cleanup(func() {
		for _, s := range f.sides {
			require.Nil(t, s.events, "a node is still open")
		}
		unix.Close(fd)
	})
	return f
}

// attach attaches a side.
func (f *fake) attach(i int, o Options) *Attachment {
	a, err := attachTo("0000:b1:00.0", o, func() (port, error) { return f.open(i) })
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, a.Close()) })
	return a
}

// mend has the link come up, with a new generation.
func (f *fake) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.LinkUp, f.state.Ready = true, true
	f.state.generation++
	f.signal()
}

// cut has the link go down.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.LinkUp = false
	f.over()
	f.signal()
}

// reset has one machine begin anew. Nobody is told.
func (f *fake) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over()
	f.state.Ready = true
	f.state.generation++
}

// over ends the generation. The caller holds mu.
func (f *fake) over() {
	f.state.Ready = false
	require.NoError(f.t, unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, f.at(0), generationLen))
}

// at returns where a side's memory begins.
func (f *fake) at(side int) int64 {
	return int64(f.state.generation)*generationLen + int64(side)*generationLen/2
}

// remove takes the bridge out of one machine, until plug.
func (f *fake) remove(i int) {
	f.mu.Lock()
	f.sides[i].gone = true
	f.mu.Unlock()
	f.cut()
}

func (f *fake) plug(i int) {
	f.mu.Lock()
	f.sides[i].gone = false
	f.mu.Unlock()
	f.mend()
}

// signal signals that the state has changed. The caller holds mu.
func (f *fake) signal() {
	for i := range f.sides {
		f.sides[i].raise(0)
	}
}

func (s *side) raise(event int) {
	if event < len(s.events) {
		_, _ = unix.Write(int(s.events[event]), []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// fakePort is an open node of a side. It implements port.
type fakePort struct {
	fake *fake
	side int
}

func (f *fake) open(i int) (port, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.sides[i]
	switch {
	case s.gone:
		return nil, unix.ENODEV
	case s.events != nil:
		return nil, unix.EBUSY
	}
	s.events = []int32{}
	return &fakePort{f, i}, nil
}

func (p *fakePort) state() (State, error) {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	f, own := p.fake, &p.fake.sides[p.side]
	s := f.state
	s.Gone, s.Node, s.Peer, s.doorbells, s.combining = own.gone, own.node, own.peer, f.doorbells, f.combining
	s.ownOffset, s.ownSize = uint64(f.at(p.side)), uint64(f.size[p.side])
	if s.Ready {
		s.peerOffset, s.peerSize = uint64(f.at(1-p.side)), uint64(f.size[1-p.side])
	}
	return s, nil
}

func (p *fakePort) setEvents(files []int32) error {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	for _, fd := range files {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		p.fake.sides[p.side].events = append(p.fake.sides[p.side].events, int32(own))
	}
	return nil
}

func (p *fakePort) ring(bell int) error {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	switch {
	case bell < 0 || bell >= p.fake.doorbells:
		return unix.EINVAL
	case !p.fake.state.Ready:
		return unix.ENOTCONN
	}
	peer := &p.fake.sides[1-p.side]
	peer.rung[bell]++
	peer.raise(1 + bell)
	return nil
}

func (p *fakePort) descriptor() int { return p.fake.fd }

func (p *fakePort) close() error {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	own := &p.fake.sides[p.side]
	for _, fd := range own.events {
		unix.Close(int(fd))
	}
	own.events = nil
	if p.fake.state.Ready { // the peer's stores end before another process has the memory
		p.fake.over()
		p.fake.state.Ready = true
		p.fake.state.generation++
		p.fake.signal()
	}
	return nil
}
