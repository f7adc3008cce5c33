//go:build linux && (amd64 || arm64)

package ntbkernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// bridgeAddresses returns the addresses of both ends of a bridge, which are in one machine. Tests of the module change which driver
// has them, and so are for machines that were made for them. What the kernel has complained of by the end of the test fails it.
func bridgeAddresses(t *testing.T) [2]string {
	t.Helper()
	addresses, ok := bridgeFunctions()
	if !ok {
		t.Skip("NTBNET_BRIDGES names no two functions of one bridge, as 0000:00:03.0;0000:00:04.0 does")
	}
	log := openKernelLog(t)
	t.Cleanup(func() { require.Empty(t, log.complaints()) })
	return addresses
}

func bridgeFunctions() (addresses [2]string, ok bool) {
	addresses[0], addresses[1], ok = strings.Cut(os.Getenv("NTBNET_BRIDGES"), ";")
	return addresses, ok
}

// guard is how long a test waits for what must happen.
const guard = time.Minute

// await waits until ok reports true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(start), guard, what)
	}
}

// openEnd opens the node of an end.
func openEnd(t *testing.T, address string) *node {
	t.Helper()
	var n *node
	await(t, "node of "+address, func() bool {
		var err error
		n, err = openNode(thisSystem, address)
		if !errors.Is(err, syscall.ENODEV) { // devtmpfs follows the kernel
			require.NoError(t, err)
		}
		return err == nil
	})
	t.Cleanup(func() { _ = n.close() }) // perhaps again
	return n
}

// openEnds opens both ends, and waits until the link is ready.
func openEnds(t *testing.T) (addresses [2]string, nodes [2]*node) {
	t.Helper()
	addresses = bridgeAddresses(t)
	for i, address := range addresses {
		nodes[i] = openEnd(t, address)
	}
	ready(t, nodes[0])
	ready(t, nodes[1])
	return addresses, nodes
}

func ready(t *testing.T, n *node) State {
	t.Helper()
	var s State
	await(t, "link to be ready", func() bool { s = look(t, n); return s.Ready })
	return s
}

func look(t *testing.T, n *node) State {
	t.Helper()
	s, err := n.state()
	require.NoError(t, err)
	return s
}

// mapRange maps a part of what the node has.
func mapRange(n *node, offset uint64, size, prot, flags int) ([]byte, error) {
	return unix.Mmap(n.fd, int64(offset), size, prot, flags)
}

const readWrite = unix.PROT_READ | unix.PROT_WRITE

// mapEnd maps both memories of an end as a whole.
func mapEnd(t *testing.T, n *node) (own, peer []byte) {
	t.Helper()
	s := ready(t, n)
	var mapped [2][]byte
	for i, m := range [2]struct{ offset, size uint64 }{{s.ownOffset, s.ownSize}, {s.peerOffset, s.peerSize}} {
		b, err := mapRange(n, m.offset, int(m.size), readWrite, unix.MAP_SHARED)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
		mapped[i] = b
	}
	return mapped[0], mapped[1]
}

// write writes a file of sysfs or debugfs.
func write(t *testing.T, value string, path ...string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(path...), []byte(value), 0))
}

// driver returns the directory of a user of the NTB bus.
func driver(name string) string { return filepath.Join("/sys/bus/ntb/drivers", name) }

// changeDriver gives an end to another user of the bus, and back at the end of the test.
func changeDriver(t *testing.T, address, from, to string) {
	t.Helper()
	write(t, address, driver(from), "unbind")
	if to != "" {
		write(t, address, driver(to), "bind")
	}
	t.Cleanup(func() {
		if to != "" {
			write(t, address, driver(to), "unbind")
		}
		write(t, address, driver(from), "bind")
	})
}

// One process has a node, and the others learn which.
func TestModuleHasOneHolder(t *testing.T) {
	addresses, nodes := openEnds(t)
	_, err := openNode(thisSystem, addresses[0])
	require.ErrorIs(t, err, ntb.ErrInUse)
	require.ErrorContains(t, err, fmt.Sprintf("process %d", os.Getpid()))
	require.NoError(t, nodes[0].close())
	holder, err := os.ReadFile(thisSystem.class(addresses[0], "holder"))
	require.NoError(t, err)
	require.Equal(t, "0\n", string(holder))
	ready(t, openEnd(t, addresses[0]))
}

// Calls with what the interface does not have fail.
func TestModuleRefuses(t *testing.T) {
	_, nodes := openEnds(t)
	n := nodes[0]
	s := look(t, n)
	page := os.Getpagesize()
	for name, c := range map[string]struct {
		offset      uint64
		size        int
		prot, flags int
	}{
		"behind its own":       {s.ownOffset + s.ownSize, page, readWrite, unix.MAP_SHARED},
		"more than its own":    {s.ownOffset, int(s.ownSize) + page, readWrite, unix.MAP_SHARED},
		"more than the peer's": {s.peerOffset + s.peerSize - uint64(page), 2 * page, readWrite, unix.MAP_SHARED},
		"behind the peer's":    {s.peerOffset + s.peerSize, page, readWrite, unix.MAP_SHARED},
		"privately":            {s.ownOffset, page, readWrite, unix.MAP_PRIVATE},
		"to execute":           {s.ownOffset, page, unix.PROT_READ | unix.PROT_EXEC, unix.MAP_SHARED},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mapRange(n, c.offset, c.size, c.prot, c.flags)
			require.ErrorIs(t, err, syscall.EINVAL)
		})
	}
	require.ErrorIs(t, n.ring(s.doorbells), syscall.EINVAL)
	require.ErrorIs(t, n.ioctl(ring+1, 0), syscall.ENOTTY)
	require.ErrorIs(t, n.ioctl(getInfo, 0), syscall.EFAULT)

	short := deviceInfo{argsz: uint32(unsafe.Sizeof(deviceInfo{})) - 8}
	require.ErrorIs(t, pass(n, getInfo, &short), syscall.EINVAL)
	whole := func(count int) uint32 { return uint32(unsafe.Offsetof(eventSet{}.files)) + uint32(4*count) }
	var none [1 + maxDoorbells]int32
	for i := range none {
		none[i] = -1
	}
	for name, c := range map[string]struct {
		set  eventSet
		want error
	}{
		"flags":            {eventSet{argsz: whole(1), flags: 1, count: 1}, syscall.EINVAL},
		"short":            {eventSet{argsz: whole(1), count: 2}, syscall.EINVAL},
		"one too many":     {eventSet{argsz: whole(64), start: uint32(1 + s.doorbells), count: 1, files: none}, syscall.EINVAL},
		"more than all":    {eventSet{argsz: whole(2 + s.doorbells), count: uint32(2 + s.doorbells), files: none}, syscall.EINVAL},
		"far too many":     {eventSet{argsz: ^uint32(0), start: 1, count: ^uint32(0)}, syscall.EINVAL},
		"far behind":       {eventSet{argsz: whole(1), start: ^uint32(0), count: 1}, syscall.EINVAL},
		"a file of others": {eventSet{argsz: whole(1), count: 1, files: [1 + maxDoorbells]int32{int32(n.fd)}}, syscall.EINVAL},
		"no file":          {eventSet{argsz: whole(1), count: 1, files: [1 + maxDoorbells]int32{1 << 20}}, syscall.EBADF},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, pass(n, setEvents, &c.set), c.want) })
	}
}

// A mapping does not reach children or dumps of memory, and does not grow.
func TestModuleMappingsAreFlagged(t *testing.T) {
	_, nodes := openEnds(t)
	own, peer := mapEnd(t, nodes[0])
	maps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	for _, m := range [][]byte{own, peer} {
		_, rest, ok := bytes.Cut(maps, fmt.Appendf(nil, "%x-", unsafe.SliceData(m)))
		require.True(t, ok)
		_, rest, _ = bytes.Cut(rest, []byte("VmFlags:"))
		line, _, _ := strings.Cut(string(rest), "\n")
		require.Subset(t, strings.Fields(line), []string{"io", "pf", "dc", "de", "dd"})
	}
}

// What one side stores arrives at the other, whose next holder finds nothing of it.
func TestModuleClearsMemory(t *testing.T) {
	addresses, nodes := openEnds(t)
	_, there := mapEnd(t, nodes[0])
	part := func(n *node) []byte {
		s := ready(t, n)
		own, err := mapRange(n, s.ownOffset, int(s.ownSize), readWrite, unix.MAP_SHARED)
		require.NoError(t, err)
		return own
	}
	own := part(nodes[1])
	for _, at := range []int{0, os.Getpagesize(), len(there) - 8} {
		there[at] = 0xa5
		require.EqualValues(t, 0xa5, own[at], "at %d", at)
	}
	require.NoError(t, nodes[1].close())
	_, err := openNode(thisSystem, addresses[1])
	require.ErrorIs(t, err, ntb.ErrInUse, "a mapping holds the node")
	require.NoError(t, unix.Munmap(own))
	own = part(openEnd(t, addresses[1]))
	require.Equal(t, len(own), bytes.Count(own, []byte{0}))
	require.NoError(t, unix.Munmap(own))
}

// What the peer stores while one process closes the node and another opens it, the other does not find, with or without time between.
func TestModuleNextHolderFindsNothing(t *testing.T) {
	addresses, nodes := openEnds(t)
	for round := range 40 {
		_, peer := mapEnd(t, nodes[0])
		before := look(t, nodes[0]).generation
		stop := make(chan struct{})
		var stores sync.WaitGroup
		stores.Go(func() {
			for at := 0; ; at += 64 {
				select {
				case <-stop:
					return
				default:
					peer[at%len(peer)] = 0xa5
				}
			}
		})
		require.NoError(t, nodes[1].close())
		if round%2 == 1 { // a process at the other side uses the link when there is none here
			await(t, "a link without a process", func() bool { s := look(t, nodes[0]); return s.Ready && s.generation != before })
			_, peer := mapEnd(t, nodes[0])
			peer[round] = 0xa5
		}
		nodes[1] = openEnd(t, addresses[1])
		s := ready(t, nodes[1])
		own, err := mapRange(nodes[1], s.ownOffset, int(s.ownSize), readWrite, unix.MAP_SHARED)
		require.NoError(t, err)
		require.Equal(t, len(own), bytes.Count(own, []byte{0}), "round %d", round)
		close(stop)
		stores.Wait()
		require.Equal(t, len(own), bytes.Count(own, []byte{0}), "round %d", round)
		require.NoError(t, unix.Munmap(own))
	}
}

// What a process has stored at a side that has no process any more, the next one of the same side does not find.
func TestModuleNextSenderFindsNothing(t *testing.T) {
	addresses, nodes := openEnds(t)
	page := os.Getpagesize() // one byte of each, since an access to a model takes tens of microseconds
	store := func() {
		s := ready(t, nodes[0])
		peer, err := mapRange(nodes[0], s.peerOffset, int(s.peerSize), readWrite, unix.MAP_SHARED)
		require.NoError(t, err)
		for at := 0; at < len(peer); at += page {
			peer[at] = 0xa5
		}
		require.NoError(t, unix.Munmap(peer))
	}
	store() // at a process
	before := look(t, nodes[0]).generation
	require.NoError(t, nodes[1].close())
	await(t, "a link without a process", func() bool { s := look(t, nodes[0]); return s.Ready && s.generation != before })
	store() // and at none
	require.NoError(t, nodes[0].close())
	_, peer := mapEnd(t, openEnd(t, addresses[0]))
	for at := 0; at < len(peer); at += page {
		require.Zero(t, peer[at], "at %d", at)
	}
}

// interrupts returns how often each vector of a function has interrupted.
func interrupts(t *testing.T, address string) map[int]int {
	t.Helper()
	table, err := os.ReadFile("/proc/interrupts")
	require.NoError(t, err)
	counts := make(map[int]int)
	for line := range strings.Lines(string(table)) {
		words := strings.Fields(line)
		at := slices.Index(words, "PCI-MSIX-"+address)
		if at < 0 {
			continue
		}
		vector, err := strconv.Atoi(strings.TrimSuffix(words[at+1], "-edge"))
		require.NoError(t, err, line)
		for _, word := range words[1:at] { // a column for each processor, and then the controller's name
			n, _ := strconv.Atoi(word)
			counts[vector] += n
		}
	}
	return counts
}

// hasBits reports whether the bridge at an address has an interrupt for each doorbell.
func hasBits(t *testing.T, address string) bool {
	t.Helper()
	link, err := os.Readlink("/sys/bus/pci/devices/" + address + "/driver")
	require.NoError(t, err)
	return filepath.Base(link) == "ntb_hw_intel"
}

// Each doorbell is an event of its own, and an interrupt of its own where the bridge has one for each.
func TestModuleRings(t *testing.T) {
	addresses, nodes := openEnds(t)
	bits := hasBits(t, addresses[1])
	n := look(t, nodes[1]).doorbells
	e, err := newEvents(1 + n)
	require.NoError(t, err)
	defer e.close()
	require.NoError(t, nodes[1].setEvents(e.fds))
	for _, f := range e.files {
		require.NoError(t, f.SetReadDeadline(time.Now().Add(guard)))
	}
	before := interrupts(t, addresses[1])
	for bell := range n {
		require.NoError(t, nodes[0].ring(bell))
		require.NoError(t, e.wait(1+bell), "doorbell %d", bell)
		for other := range n {
			var count [8]byte
			if _, err := unix.Read(int(e.fds[1+other]), count[:]); bits {
				require.ErrorIs(t, err, unix.EAGAIN, "doorbell %d, event of %d", bell, other)
			}
		}
	}
	if !bits {
		return
	}
	after := interrupts(t, addresses[1])
	for vector := range n {
		require.Equal(t, 1, after[vector]-before[vector], "interrupts of vector %d", vector)
	}
}

// A node that is opened has no events of the holder before.
func TestModuleForgetsEvents(t *testing.T) {
	addresses, nodes := openEnds(t)
	e, err := newEvents(1)
	require.NoError(t, err)
	defer e.close()
	require.NoError(t, nodes[1].setEvents(e.fds))
	require.NoError(t, nodes[1].close())
	var count [8]byte
	_, _ = unix.Read(int(e.fds[0]), count[:]) // the link of that holder
	ready(t, openEnd(t, addresses[1]))
	_, err = unix.Read(int(e.fds[0]), count[:])
	require.ErrorIs(t, err, unix.EAGAIN)
}

// When an end is taken away, its mappings and those of the other side reach nothing any more, also once it is back.
func TestModuleRevokes(t *testing.T) {
	addresses, nodes := openEnds(t)
	own, peer := mapEnd(t, nodes[0])
	takenOwn, takenPeer := mapEnd(t, nodes[1])
	before := look(t, nodes[0])
	peer[64], takenPeer[64] = 1, 2
	require.EqualValues(t, 1, takenOwn[64])
	require.EqualValues(t, 2, own[64])

	write(t, addresses[1], driver("ntb_cdev"), "unbind")
	taken := look(t, nodes[1])
	require.True(t, taken.Gone)
	require.ErrorIs(t, taken.missing(addresses[1]), syscall.ENODEV)
	require.ErrorIs(t, nodes[1].ring(0), syscall.ENODEV)
	_, err := mapRange(nodes[1], taken.ownOffset, os.Getpagesize(), readWrite, unix.MAP_SHARED)
	require.ErrorIs(t, err, syscall.ENODEV)
	require.NoFileExists(t, thisSystem.node(addresses[1]))
	require.Zero(t, takenOwn[64])
	require.Zero(t, takenPeer[64])

	await(t, "the other side to notice", func() bool { return !look(t, nodes[0]).Ready })
	require.EqualValues(t, 2, own[64], "what has arrived stays")
	require.Zero(t, peer[64])
	peer[64] = 1
	require.EqualValues(t, 2, own[64])
	require.ErrorIs(t, nodes[0].ring(0), syscall.ENOTCONN)
	for _, offset := range []uint64{before.ownOffset, before.peerOffset} {
		_, err = mapRange(nodes[0], offset, os.Getpagesize(), readWrite, unix.MAP_SHARED)
		require.ErrorIs(t, err, syscall.ENOTCONN)
	}

	write(t, addresses[1], driver("ntb_cdev"), "bind")
	again := openEnd(t, addresses[1])
	ready(t, again)
	after := ready(t, nodes[0])
	require.NotEqual(t, before.generation, after.generation)
	require.Equal(t, before.Node, after.Node)
	newOwn, _ := mapEnd(t, again)
	_, newPeer := mapEnd(t, nodes[0])
	for i := range peer {
		peer[i], takenPeer[i] = 0xff, 0xff
	}
	newPeer[128] = 3
	require.EqualValues(t, 3, newOwn[128])
	require.Equal(t, len(newOwn)-1, bytes.Count(newOwn, []byte{0}))
}

// words are what a side's module says, by way of ntb_tool.
type words struct{ magic, generation, grant, seen uint32 }

const toolDir = "/sys/kernel/debug/ntb_tool"

// hostile has ntb_tool have an end.
type hostile struct {
	t    *testing.T
	peer string // directory of the peer's registers
	own  string
}

func newHostile(t *testing.T, address string) *hostile {
	t.Helper()
	mountDebug(t)
	changeDriver(t, address, "ntb_cdev", "ntb_tool")
	own := filepath.Join(toolDir, address)
	write(t, "Y", own, "link")
	write(t, "Y", own, "peer0/link_event") // waits for it
	return &hostile{t, filepath.Join(own, "peer0"), own}
}

func (h *hostile) set(word int, value uint32) {
	h.t.Helper()
	write(h.t, strconv.FormatUint(uint64(value), 10), h.peer, fmt.Sprintf("spad%d", word))
}

// hears returns a word that the other side has written.
func (h *hostile) hears(word int) uint32 {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.own, fmt.Sprintf("spad%d", word)))
	require.NoError(h.t, err)
	v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 32)
	require.NoError(h.t, err)
	return uint32(v)
}

func (h *hostile) says(w words) {
	h.t.Helper()
	for i, v := range []uint32{w.magic, w.generation, w.grant, w.seen} {
		if i > 0 {
			h.set(i, v)
		}
	}
	h.set(0, w.magic)
}

// Words of the peer are checked, whatever it is.
func TestModuleChecksWords(t *testing.T) {
	addresses := bridgeAddresses(t)
	n := openEnd(t, addresses[0])
	h := newHostile(t, addresses[1])
	await(t, "link", func() bool { return look(t, n).LinkUp })
	own := func() uint32 { return h.hears(1) }
	await(t, "words", func() bool { return h.hears(0) == moduleWord|moduleABI && own() != 0 })

	const page = 4096
	good := func() words { return words{moduleWord | moduleABI, 77, 1 << 20 / page, own()} }
	bad := map[string]func(w *words){
		"nothing":              func(w *words) { *w = words{} },
		"ones":                 func(w *words) { *w = words{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)} },
		"ntb_transport":        func(w *words) { w.magic = transportWord },
		"another version":      func(w *words) { w.magic++ },
		"no generation":        func(w *words) { w.generation = 0 },
		"no memory":            func(w *words) { w.grant = 0 },
		"little memory":        func(w *words) { w.grant = 1 },
		"a window of nobody's": func(w *words) { w.grant |= 15 << 24 },
		"no answer":            func(w *words) { w.seen = 0 },
		"another answer":       func(w *words) { w.seen++ },
	}
	for name, change := range bad {
		t.Run(name, func(t *testing.T) {
			w := good()
			change(&w)
			h.set(0, 0) // while words change
			h.says(w)
			for range 5 {
				s := look(t, n)
				require.False(t, s.Ready)
				require.ErrorIs(t, s.missing(addresses[0]), syscall.ENOTCONN)
				require.Equal(t, w.magic, s.Peer)
				_, err := mapRange(n, s.peerOffset, os.Getpagesize(), readWrite, unix.MAP_SHARED)
				require.ErrorIs(t, err, syscall.ENOTCONN)
			}
		})
	}
	t.Run("absurd size", func(t *testing.T) {
		w := good()
		w.grant = 1<<24 - 1
		h.says(w)
		s := ready(t, n)
		require.LessOrEqual(t, s.peerSize, s.ownSize) // both windows are of one size, and the buffer is as large
		require.NotZero(t, s.peerSize)
		_, err := mapRange(n, s.peerOffset, int(s.peerSize)+os.Getpagesize(), readWrite, unix.MAP_SHARED)
		require.ErrorIs(t, err, syscall.EINVAL)
		own, peer := mapEnd(t, n)
		h.set(1, w.generation+1) // begins anew, and answers
		require.NotEqual(t, s.generation, ready(t, n).generation)
		require.EqualValues(t, w.generation+1, h.hears(3))
		peer[0] = 1
		require.EqualValues(t, 1, peer[os.Getpagesize()], "the mapping has a page of its own")
		require.Zero(t, own[0])
	})
	t.Run("words that change all the time", func(t *testing.T) {
		stop := make(chan struct{})
		var changes sync.WaitGroup
		changes.Go(func() {
			for i := uint32(1); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				w := words{moduleWord | moduleABI, i, i * 977, own()}
				h.says(w)
			}
		})
		for range 200 {
			s := look(t, n)
			require.LessOrEqual(t, s.peerSize, s.ownSize)
		}
		close(stop)
		changes.Wait()
		h.says(good())
		ready(t, n)
	})
}
