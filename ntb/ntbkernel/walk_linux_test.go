//go:build linux && (amd64 || arm64)

package ntbkernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// holderVariable has a process of the test open the node with this address, and use it until it is killed.
const holderVariable = "NTBNET_HOLD"

func init() {
	if address := os.Getenv(holderVariable); address != "" {
		fmt.Fprintln(os.Stderr, "error:", hold(address))
		os.Exit(1)
	}
}

// scribbled is the part of memory that processes of holderVariable store into, and nobody compares.
const scribbled = 4096

// hold opens a node, says so, and then maps, stores, rings and asks for ever.
func hold(address string) error {
	n, err := openNode(thisSystem, address)
	if err != nil {
		return err
	}
	fmt.Println("open")
	var peer []byte
	for generation := uint32(0); ; {
		s, err := n.state()
		if err != nil {
			return err
		}
		if s.Ready && s.generation != generation {
			if peer != nil {
				_ = unix.Munmap(peer)
			}
			peer, err = mapRange(n, s.peerOffset, scribbled, readWrite, unix.MAP_SHARED)
			if err != nil && !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.ENODEV) {
				return err
			}
			generation = s.generation
		}
		for i := range peer {
			peer[i]++
		}
		_ = n.ring(0)
		runtime.Gosched()
	}
}

// mapping is a mapping of an end's own memory or of its peer's.
type mapping struct {
	bytes      []byte
	at         int // in the memory
	peer       bool
	generation uint32
}

// end is what a walk knows of a port.
type end struct {
	address string
	index   int
	driven  bool // ntb_softpair has the function
	bound   bool // ntb_cdev has the port

	holder *exec.Cmd // a process that has the node
	node   *node     // this process has it
	gone   bool      // the port was removed since then, from either

	events     *events
	maps       []mapping
	generation uint32 // 0 unless the node has been seen ready
	over       bool   // the generation has ended
	memory     []byte // what its own memory has from scribbled on
}

// walk is a random walk through what can happen to a bridge.
type walk struct {
	t      *testing.T
	random *rand.Rand
	loaded bool // ntb_cdev
	cable  bool
	ends   [2]*end
	log    []string // what was done last

	arrived int // stores
}

func (w *walk) peer(e *end) *end { return w.ends[1-e.index] }

// ready reports whether the link is or becomes ready.
func (w *walk) ready() bool { return w.cable && w.ends[0].bound && w.ends[1].bound }

// disrupt notes that the generations of both ends are over.
func (w *walk) disrupt() {
	for _, e := range w.ends {
		e.over = e.generation != 0
	}
}

// missing returns the error of what needs a link.
func (w *walk) missing(e *end) error {
	switch {
	case e.gone:
		return syscall.ENODEV
	case !w.ready():
		return syscall.ENOTCONN
	}
	return nil
}

func (w *walk) requireError(err, want error, what string) {
	w.t.Helper()
	if want == nil {
		require.NoError(w.t, err, what)
		return
	}
	require.ErrorIs(w.t, err, want, what)
}

// live reports whether a mapping still shows memory.
func (e *end) live(m mapping) bool {
	return !e.gone && (!m.peer || m.generation == e.generation && !e.over)
}

// removed notes that an end's port was removed.
func (w *walk) removed(e *end) {
	e.bound = false
	e.gone = e.node != nil || e.holder != nil
	w.disrupt()
}

// left notes that nobody has the node of an end any more. If it is still there, the link begins anew.
func (w *walk) left(e *end) {
	if !e.gone {
		w.disrupt()
	}
	e.gone = false
}

// steps are what a walk does, by how often it does them. Each returns false if it does not apply.
var steps = []struct {
	name   string
	weight int
	do     func(w *walk, e *end) bool
}{
	{"open", 5, (*walk).open},
	{"close", 2, (*walk).close},
	{"map", 6, (*walk).mapSome},
	{"unmap", 1, (*walk).unmap},
	{"store", 8, (*walk).store},
	{"compare", 4, (*walk).compare},
	{"ring", 4, (*walk).ring},
	{"hold", 2, (*walk).hold},
	{"kill", 2, (*walk).kill},
	{"take the port from ntb_cdev", 1, (*walk).unbind},
	{"give ntb_cdev the port", 4, (*walk).bind},
	{"take the function from the driver", 1, (*walk).undrive},
	{"give the driver the function", 4, (*walk).drive},
	{"unload", 1, (*walk).unload},
	{"load", 4, (*walk).load},
	{"cut", 1, (*walk).cut},
	{"mend", 3, (*walk).mend},
}

func (w *walk) open(e *end) bool {
	switch {
	case e.gone: // the node would be another one
		return false
	case e.node != nil || e.holder != nil:
		_, err := openNode(thisSystem, e.address)
		require.ErrorIs(w.t, err, ntb.ErrInUse)
		return true
	case !e.bound:
		_, err := openNode(thisSystem, e.address)
		require.ErrorIs(w.t, err, syscall.ENODEV)
		return true
	}
	var err error
	e.node, err = openNode(thisSystem, e.address)
	require.NoError(w.t, err)
	w.disrupt()
	s := look(w.t, e.node)
	e.memory = make([]byte, s.ownSize) // zeros
	e.generation, e.over = 0, false
	e.events, err = newEvents(1 + s.doorbells)
	require.NoError(w.t, err)
	require.NoError(w.t, e.node.setEvents(e.events.fds))
	return true
}

func (w *walk) close(e *end) bool {
	if e.node == nil {
		return false
	}
	for len(e.maps) > 0 {
		w.unmap(e)
	}
	require.NoError(w.t, e.node.close())
	require.NoError(w.t, e.events.close())
	e.node, e.generation = nil, 0
	w.left(e)
	return true
}

func (w *walk) mapSome(e *end) bool {
	if e.node == nil || len(e.maps) > 20 {
		return false
	}
	s := look(w.t, e.node)
	m := mapping{peer: w.random.IntN(2) == 0, generation: s.generation}
	offset, size := s.ownOffset, int(s.ownSize)
	if m.peer {
		offset, size = s.peerOffset, int(s.peerSize)
	}
	page := os.Getpagesize()
	pages := max(size/page, 1)
	m.at = w.random.IntN(pages) * page
	length := (1 + w.random.IntN(pages-m.at/page)) * page
	var err error
	m.bytes, err = mapRange(e.node, offset+uint64(m.at), length, readWrite, unix.MAP_SHARED)
	w.requireError(err, w.missing(e), "mmap")
	if err == nil {
		e.maps = append(e.maps, m)
	}
	return true
}

func (w *walk) unmap(e *end) bool {
	if len(e.maps) == 0 {
		return false
	}
	i := w.random.IntN(len(e.maps))
	require.NoError(w.t, unix.Munmap(e.maps[i].bytes))
	e.maps = append(e.maps[:i], e.maps[i+1:]...)
	return true
}

// store stores into the peer's memory, or by a mapping that reaches nothing any more.
func (w *walk) store(e *end) bool {
	for range 8 * min(1, len(e.maps)) {
		w.storeByte(e, e.maps[w.random.IntN(len(e.maps))])
	}
	return len(e.maps) > 0
}

func (w *walk) storeByte(e *end, m mapping) {
	at, b := w.random.IntN(len(m.bytes)), byte(w.random.Uint32())
	into := e
	if m.peer {
		into = w.peer(e)
	}
	if m.at+at < scribbled || !m.peer && e.gone {
		_ = m.bytes[at]
		return
	}
	m.bytes[at] = b
	if e.live(m) && m.at+at < len(into.memory) {
		into.memory[m.at+at] = b
		if m.peer && into.node != nil {
			w.arrived++
		}
	}
}

// compare compares an end's memory with what was stored.
func (w *walk) compare(e *end) bool {
	if e.node == nil {
		return false
	}
	for _, m := range e.maps {
		if m.peer {
			continue
		}
		want := make([]byte, len(e.memory))
		if !e.gone {
			want = e.memory
		}
		for i, b := range m.bytes {
			if at := m.at + i; (at >= scribbled || e.gone) && b != want[at] {
				require.Failf(w.t, "memory differs", "at %d of end %d: %#x, want %#x", at, e.index, b, want[at])
			}
		}
	}
	return true
}

func (w *walk) ring(e *end) bool {
	if e.node == nil {
		return false
	}
	s := look(w.t, e.node)
	if s.doorbells == 0 {
		require.ErrorIs(w.t, e.node.ring(0), syscall.EINVAL)
		return true
	}
	bell := w.random.IntN(s.doorbells)
	w.requireError(e.node.ring(bell), w.missing(e), "ring")
	if p := w.peer(e); w.ready() && !e.gone && p.node != nil && !p.gone {
		require.NoError(w.t, p.events.files[1+bell].SetReadDeadline(time.Now().Add(guard)))
		require.NoError(w.t, p.events.wait(1+bell), "doorbell %d", bell)
	}
	return true
}

func (w *walk) hold(e *end) bool {
	if !e.bound || e.node != nil || e.holder != nil {
		return false
	}
	e.holder = exec.Command("/proc/self/exe")
	e.holder.Env = append(os.Environ(), holderVariable+"="+e.address)
	e.holder.Stderr = os.Stderr
	out, err := e.holder.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, e.holder.Start())
	said := make([]byte, 5)
	_, err = out.Read(said)
	require.NoError(w.t, err)
	require.Equal(w.t, "open\n", string(said))
	w.disrupt()
	holder, err := os.ReadFile(thisSystem.class(e.address, "holder"))
	require.NoError(w.t, err)
	require.Equal(w.t, fmt.Sprintln(e.holder.Process.Pid), string(holder))
	return true
}

func (w *walk) kill(e *end) bool {
	if e.holder == nil {
		return false
	}
	require.NoError(w.t, e.holder.Process.Kill())
	require.ErrorContains(w.t, e.holder.Wait(), "killed")
	e.holder = nil
	w.left(e)
	return true
}

func (w *walk) unbind(e *end) bool {
	if !w.loaded {
		return false
	}
	err := os.WriteFile(driver("ntb_cdev")+"/unbind", []byte(e.address), 0)
	if !e.bound {
		require.ErrorIs(w.t, err, syscall.ENODEV)
		return true
	}
	require.NoError(w.t, err)
	w.removed(e)
	return true
}

func (w *walk) bind(e *end) bool {
	if !w.loaded || !e.driven || e.bound {
		return false
	}
	require.NoError(w.t, os.WriteFile(driver("ntb_cdev")+"/bind", []byte(e.address), 0))
	e.bound = true
	return true
}

func (w *walk) undrive(e *end) bool {
	if !e.driven {
		return false
	}
	require.NoError(w.t, os.WriteFile(softFunctions+"/unbind", []byte(e.address), 0))
	e.driven = false
	w.removed(e)
	return true
}

func (w *walk) drive(e *end) bool {
	if e.driven {
		return false
	}
	require.NoError(w.t, os.WriteFile(softFunctions+"/bind", []byte(e.address), 0))
	e.driven, e.bound = true, w.loaded
	return true
}

func (w *walk) unload(*end) bool {
	if !w.loaded {
		return false
	}
	err := unloadModule("ntb_cdev")
	for _, e := range w.ends {
		if e.node != nil || e.holder != nil {
			require.ErrorIs(w.t, err, syscall.EAGAIN)
			return true
		}
	}
	require.NoError(w.t, err)
	w.loaded = false
	for _, e := range w.ends {
		w.removed(e)
	}
	return true
}

func (w *walk) load(*end) bool {
	if w.loaded {
		return false
	}
	loadModule(w.t, "ntb_cdev", "")
	w.loaded = true
	for _, e := range w.ends {
		e.bound = e.driven
	}
	return true
}

func (w *walk) cut(*end) bool { return w.connect(false) }

func (w *walk) mend(*end) bool { return w.connect(true) }

func (w *walk) connect(cable bool) bool {
	if w.cable == cable {
		return false
	}
	setCable(w.t, cable)
	w.cable = cable
	w.disrupt()
	return true
}

// settle waits until open nodes say what they must.
func (w *walk) settle() {
	w.t.Helper()
	for _, e := range w.ends {
		if e.node == nil {
			continue
		}
		s := look(w.t, e.node)
		if w.ready() && !e.gone {
			await(w.t, "link to be ready", func() bool {
				s = look(w.t, e.node)
				return s.Ready && (!e.over || s.generation != e.generation)
			})
			if e.generation != 0 && !e.over {
				require.Equal(w.t, e.generation, s.generation, "the link began anew")
			}
			e.generation, e.over = s.generation, false
			require.EqualValues(w.t, moduleWord|moduleABI, s.Peer)
			require.NotZero(w.t, s.Node)
			require.NotZero(w.t, s.peerSize)
		} else {
			require.False(w.t, s.Ready)
			require.Zero(w.t, s.peerSize)
			require.Equal(w.t, e.gone, s.Gone)
		}
		require.Equal(w.t, w.ready() && !e.gone, s.LinkUp)
	}
	if a, b := w.ends[0], w.ends[1]; w.ready() && a.node != nil && b.node != nil && !a.gone && !b.gone {
		require.Equal(w.t, 3, look(w.t, a.node).Node+look(w.t, b.node).Node)
	}
}

// step does one step that applies.
func (w *walk) step(i int) {
	sum := 0
	for _, s := range steps {
		sum += s.weight
	}
	for {
		n, e := w.random.IntN(sum), w.ends[w.random.IntN(2)]
		for _, s := range steps {
			if n -= s.weight; n >= 0 {
				continue
			}
			w.log = append(w.log[max(0, len(w.log)-40):], fmt.Sprintf("%d: end %d: %s", i, e.index, s.name))
			if s.do(w, e) {
				w.settle()
				return
			}
			w.log = w.log[:len(w.log)-1]
			break
		}
	}
}

// number returns a number from the environment.
func number(t *testing.T, variable string, usual uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.ParseUint(text, 0, 64)
	require.NoError(t, err)
	return n
}

// softKinds are the kinds of bridges that are walked through.
var softKinds = map[string]string{
	"as Intel's":              "",
	"odd windows, no numbers": "windows=69632 numbered=0",
	"doorbells are unsafe":    "unsafe=1",
}

// What can happen to a bridge happens in any order. NTBNET_STEPS has the number of steps of each walk, NTBNET_SEED the seed of one.
func TestModuleWalk(t *testing.T) {
	for name, parameters := range softKinds {
		t.Run(name, func(t *testing.T) {
			addresses := softPair(t, parameters)
			log := openKernelLog(t)
			seed := number(t, "NTBNET_SEED", uint64(time.Now().UnixNano()))
			w := &walk{t: t, random: rand.New(rand.NewPCG(seed, 0)), loaded: true, cable: true}
			for i, address := range addresses {
				w.ends[i] = &end{address: address, index: i, driven: true, bound: true}
			}
			defer func() {
				if t.Failed() {
					t.Logf("NTBNET_SEED=%d; the last steps:\n%s", seed, strings.Join(w.log, "\n"))
				}
				for _, e := range w.ends { // what the next test needs
					if e.holder != nil {
						w.kill(e)
					}
					w.close(e)
				}
				w.mend(nil)
			}()
			count := map[string]int{}
			for i := range int(number(t, "NTBNET_STEPS", 200)) {
				w.step(i)
				_, name, _ := strings.Cut(w.log[len(w.log)-1], ": end ")
				count[name[3:]]++
				require.Empty(t, log.complaints())
				if (i+1)%25 == 0 {
					t.Log(i+1, "steps") // who waits for the test hears of it
				}
			}
			// All is there again, and is of use.
			for _, e := range w.ends {
				w.kill(e)
				w.close(e)
			}
			w.load(nil)
			w.mend(nil)
			for _, e := range w.ends {
				w.drive(e)
				w.bind(e)
				w.open(e)
			}
			w.settle()
			for range 10 {
				for _, e := range w.ends {
					w.mapSome(e)
					w.store(e)
					w.compare(w.peer(e))
				}
			}
			t.Log(count, w.arrived, "stores reached another process")
			require.NotZero(t, w.arrived)
			require.NotEmpty(t, notFreed(t, "ntb_cdev"), "the kernel notes no allocations without slub_debug=U")
			for _, e := range w.ends {
				w.kill(e)
				w.close(e)
				w.unbind(e)
			}
			if !quarantines(t) {
				require.Empty(t, notFreed(t, "ntb_cdev"))
			}
			require.Empty(t, log.complaints())
		})
	}
}

// quarantines reports whether the kernel keeps for a while what was freed, as KASAN does. That counts as allocated.
func quarantines(t *testing.T) bool {
	symbols, err := os.ReadFile("/proc/kallsyms")
	require.NoError(t, err)
	return bytes.Contains(symbols, []byte(" kasan_report\n"))
}

// Calls with any values do no harm. Arguments lie before memory that is not there, or are not there.
func TestModuleTakesAnyCalls(t *testing.T) {
	_, nodes := openEnds(t)
	log := openKernelLog(t)
	seed := number(t, "NTBNET_SEED", uint64(time.Now().UnixNano()))
	random := rand.New(rand.NewPCG(seed, 1))
	defer func() {
		if t.Failed() {
			t.Logf("NTBNET_SEED=%d", seed)
		}
	}()
	page := os.Getpagesize()
	arena, err := unix.Mmap(-1, 0, 2*page, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(arena)) }()
	require.NoError(t, unix.Mprotect(arena[page:], unix.PROT_NONE))
	e, err := newEvents(1)
	require.NoError(t, err)
	defer e.close()
	// oneOf returns one of some values, one near it, or any.
	oneOf := func(values ...uint64) uint64 {
		v := values[random.IntN(len(values))]
		switch random.IntN(8) {
		case 0:
			return random.Uint64()
		case 1:
			return v + random.Uint64N(9) - 4
		}
		return v
	}
	s := look(t, nodes[0])
	call := func(n *node) error {
		size := []int{0, 4, 16, 20, 56, 84, page}[random.IntN(7)]
		at := page - min(page, size+random.IntN(3)) // the last bytes of what is there
		for i := at; i+4 <= page; i += 4 {
			binary.NativeEndian.PutUint32(arena[i:], uint32(oneOf(0, 1, 2, 16, 17, 20, 56, 84, 1<<31, 1<<32-1, uint64(e.fds[0]), uint64(n.fd))))
		}
		arg := oneOf(0, uint64(uintptr(unsafe.Pointer(&arena[at]))), uint64(uintptr(unsafe.Pointer(&arena[at]))), 1<<47-8, 1<<63)
		return n.ioctl(uintptr(oneOf(getInfo, setEvents, ring)&0xffff|oneOf(0, 0, 1<<16, 1<<30)&0xffff0000), uintptr(arg))
	}
	mapAny := func(n *node) error {
		length := oneOf(uint64(page), s.ownSize, s.peerSize, uint64(page)*random.Uint64N(64), 1<<46)
		offset := oneOf(s.ownOffset, s.peerOffset, s.peerOffset+s.peerSize-uint64(page), s.ownSize, 1<<63-uint64(page)) &^ uint64(page-1)
		prot, flags := int(oneOf(readWrite, unix.PROT_READ, 7)&7), int(oneOf(unix.MAP_SHARED, unix.MAP_PRIVATE, unix.MAP_SHARED|unix.MAP_POPULATE,
			unix.MAP_SHARED|unix.MAP_LOCKED, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)&^(unix.MAP_FIXED|unix.MAP_FIXED_NOREPLACE|unix.MAP_ANON|unix.MAP_GROWSDOWN))
		b, err := unix.MmapPtr(n.fd, int64(offset), nil, uintptr(length), prot, flags)
		if err != nil {
			return err
		}
		mapped := unsafe.Slice((*byte)(b), length)
		if prot&unix.PROT_WRITE != 0 {
			mapped[random.Uint64N(length)]++
		}
		within := func(from, size uint64) bool { return offset >= from && offset+length <= from+size+uint64(page)-1 }
		require.True(t, within(s.ownOffset, s.ownSize) || within(s.peerOffset, s.peerSize), "%#x bytes at %#x", length, offset)
		require.Zero(t, prot&unix.PROT_EXEC)
		require.ErrorIs(t, unix.Mprotect(mapped, unix.PROT_READ|unix.PROT_EXEC), syscall.EACCES)
		_ = unix.Madvise(mapped, int(oneOf(unix.MADV_DONTNEED, unix.MADV_DOFORK, unix.MADV_REMOVE, unix.MADV_COLD, unix.MADV_PAGEOUT, unix.MADV_POPULATE_WRITE)&31))
		_, err = unix.MremapPtr(b, uintptr(length), nil, uintptr(length)+2*uintptr(page), unix.MREMAP_MAYMOVE)
		require.ErrorIs(t, err, syscall.EFAULT)
		return unix.MunmapPtr(b, uintptr(length))
	}
	answers := map[string]int{}
	for i := range number(t, "NTBNET_STEPS", 500) * 4 {
		n, do := nodes[random.IntN(2)], call
		if random.IntN(4) == 0 {
			do = mapAny
		}
		answers[fmt.Sprint(do(n))]++
		if (i+1)%5000 == 0 {
			t.Log(i+1, "calls")
		}
	}
	t.Log(answers)
	require.Empty(t, log.complaints())
	require.NotZero(t, answers["<nil>"])
	own, _ := mapEnd(t, nodes[0])
	_, peer := mapEnd(t, nodes[1])
	peer[page] = ^own[page]
	require.Equal(t, peer[page], own[page])
}

// A window that was perhaps not closed keeps its memory. A kernel that checks DMA complains of that.
func TestModuleKeepsMemoryOfAnOpenWindow(t *testing.T) {
	addresses, ok := bridgeFunctions()
	if !ok {
		t.Skip("there is no bridge")
	}
	mountDebug(t)
	if _, err := os.Stat("/sys/kernel/debug/dma-api"); err == nil {
		t.Skip("this kernel checks DMA")
	}
	haveSoftPair(t, "stuck=1")
	n := openEnd(t, addresses[0])
	ready(t, n)
	require.NoError(t, n.close())
	log := openKernelLog(t)
	await(t, "unload", func() bool { return unloadModule("ntb_cdev") == nil })
	said := strings.Join(log.lines(), "\n")
	require.Equal(t, 2, strings.Count(said, "was not closed (-5): its memory is kept for ever"), said)
	require.NotContains(t, said, "WARNING")
}
