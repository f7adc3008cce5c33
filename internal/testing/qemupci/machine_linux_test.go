package qemupci

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// word is a function that keeps one word in its BAR, stores what is written there in the machine's memory, and
// interrupts it.
type word struct {
	in    pcimodel.Machine
	value uint64
}

func (w *word) Header() pcimodel.Header {
	return pcimodel.Header{Vendor: 0x8086, Device: 0x347e, BARs: [6]pcimodel.BAR{{Size: 4096}},
		MSIX: pcimodel.MSIX{Vectors: 1, Table: 0x800, Pending: 0x900}}
}
func (w *word) Read(int, uint64, int) uint64 { return w.value }
func (w *word) Write(_ int, offset uint64, size int, v uint64) {
	w.value = v
	pcimodel.Store(w.in.Memory(offset, size), v)
	w.in.Raise(0)
}
func (w *word) Attach(m pcimodel.Machine) { w.in = m }
func (w *word) Reset()                    { w.value = 0 }

// qemu is the other end of a device's socket, as QEMU has it.
type qemu struct {
	t    *testing.T
	conn *net.UnixConn
}

func (q qemu) send(command uint32, fds []int, words ...any) {
	q.t.Helper()
	var body []byte
	for _, w := range words {
		body, _ = binary.Append(body, binary.LittleEndian, w)
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(command))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(body)))
	_, _, err := q.conn.WriteMsgUnix(append(b, body...), unix.UnixRights(fds...), nil)
	require.NoError(q.t, err)
}

func (q qemu) ask(command uint32, words ...any) uint64 {
	q.t.Helper()
	q.send(command, nil, words...)
	var b [24]byte
	_, err := q.conn.Read(b[:])
	require.NoError(q.t, err)
	require.EqualValues(q.t, cmdReply, binary.LittleEndian.Uint64(b[:]))
	require.EqualValues(q.t, 8, binary.LittleEndian.Uint64(b[8:]))
	return binary.LittleEndian.Uint64(b[16:])
}

func (q qemu) setConfig(offset, size int32, v uint32) { q.ask(cmdConfigWrite, offset, v, size) }

func TestAMachineSpeaksQEMUsProtocol(t *testing.T) {
	leak.Check(t)
	m, err := New(512, new(word))
	require.NoError(t, err)
	require.Equal(t, []string{"-m", "512", "-machine", "memory-backend=ram",
		"-object", "memory-backend-memfd,id=ram,size=512M,share=on",
		"-chardev", "socket,id=qtest,fd=3", "-qtest", "chardev:qtest", "-qtest-log", "none",
		"-device", "x-pci-proxy-dev,fd=4,addr=5"}, m.Args(3, 5))
	var ends []*net.UnixConn
	for _, f := range m.Files() {
		c, err := net.FileConn(f)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		ends = append(ends, c.(*net.UnixConn))
	}
	served := make(chan error)
	go func() { served <- m.Serve() }()
	q := qemu{t, ends[1]}
	messages := answerCommands(ends[0], nil)

	// What QEMU sends first: the memory, in one file, and descriptors for an interrupt that is not used.
	fd, err := memfd.Create("ram", 8192)
	require.NoError(t, err)
	defer unix.Close(fd)
	for range 2 {
		q.send(cmdSyncMemory, []int{fd, fd}, [8]uint64{0, 0x100000}, [8]uint64{0x800, 4096}, [8]uint64{0, 4096})
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	q.send(cmdSetInterrupt, []int{int(r.Fd()), int(w.Fd())})

	require.EqualValues(t, 0x347e8086, q.ask(cmdConfigRead, int32(0), int32(0), int32(4)))
	q.setConfig(0x10, 4, 0xe0000000)
	q.setConfig(4, 2, 6)
	q.setConfig(0x42, 2, 0x8000)
	q.ask(cmdWrite, uint64(0xe0000800), uint64(0xfee00000), uint32(8), uint32(1))
	q.ask(cmdWrite, uint64(0xe0000808), uint64(0x41), uint32(8), uint32(1))

	q.ask(cmdWrite, uint64(0xe0000010), uint64(0x1122334455667788), uint32(8), uint32(1))
	require.EqualValues(t, 0x1122334455667788, q.ask(cmdRead, uint64(0xe0000010), uint64(0), uint32(8), uint32(1)))
	var stored [8]byte
	_, err = unix.Pread(fd, stored[:], 0x10)
	require.NoError(t, err)
	require.EqualValues(t, 0x1122334455667788, binary.LittleEndian.Uint64(stored[:]))
	require.Equal(t, "writel 0xfee00000 0x41", <-messages)

	q.ask(cmdReset)
	q.setConfig(0x10, 4, 0xe0000000)
	require.Zero(t, q.ask(cmdRead, uint64(0xe0000010), uint64(0), uint32(8), uint32(1)))
	q.setConfig(4, 2, 6)
	d := m.devices[0]
	require.NotNil(t, d.Memory(0x100ff8, 8))
	require.Nil(t, d.Memory(0x100ffc, 8))
	require.Nil(t, d.Memory(0x7fc, 8), "between regions")

	for _, c := range ends {
		c.Close()
	}
	require.NoError(t, <-served)
	require.Nil(t, d.Memory(0, 8))
	for range messages {
	}
}

// answerCommands answers qtest's commands at a socket until it is closed. Registers have values by their addresses, or 0. It returns
// the commands that write.
func answerCommands(c net.Conn, registers map[string]*atomic.Uint64) <-chan string {
	wrote := make(chan string, 16)
	go func() {
		defer close(wrote)
		for lines := bufio.NewScanner(c); lines.Scan(); {
			command, rest, _ := strings.Cut(lines.Text(), " ")
			value := uint64(0)
			switch r := registers[rest]; {
			case command == "writel":
				wrote <- lines.Text()
			case r != nil:
				value = r.Load()
			}
			fmt.Fprintf(c, "OK %#016x\n", value)
		}
	}()
	return wrote
}

func TestTheIOMMUTranslates(t *testing.T) {
	leak.Check(t)
	m, err := New(512, new(word), new(word))
	require.NoError(t, err)
	defer m.close()
	m.Args(3, 5)
	commands, err := net.FileConn(m.Files()[0])
	require.NoError(t, err)
	var status, root atomic.Uint64
	root.Store(0x1000)
	ended := answerCommands(commands, map[string]*atomic.Uint64{"0xfed9001c": &status, "0xfed90020": &root})

	fd, err := memfd.Create("ram", 0x10000)
	require.NoError(t, err)
	require.NoError(t, m.memory.set([]region{{0, 0x10000, 0}}, []int{fd}))
	set := func(address, v uint64) { pcimodel.Store(m.memory.at(address, 8), v) }
	for _, here := range []uint64{0x7018, 0x8008, 0x8018} {
		set(here, here)
	}
	at := func(d int, address uint64) any { // where it leads, nil if nowhere
		b := m.devices[d].Memory(address, 8)
		if b == nil {
			return nil
		}
		return pcimodel.Load(b)
	}
	require.EqualValues(t, 0x8008, at(0, 0x8008), "it is off")

	status.Store(iommuEnabled)
	require.EqualValues(t, 0x8008, at(0, 0x8008), "no reset since")
	m.iommu.reset()
	require.Nil(t, at(0, 0x8008), "no root")
	set(0x1000, 0x2000|iommuPresent)
	require.Nil(t, at(0, 0x8008), "no context")
	set(0x2000+16*8*6, iommuPresent|2<<2)
	require.EqualValues(t, 0x8008, at(1, 0x8008), "pass-through")
	context := uint64(0x2000 + 16*8*5)
	set(context, 0x3000|iommuPresent)
	set(context+8, 1|7<<8) // three levels
	require.Nil(t, at(0, 0x8008), "no table")
	const address = 5<<30 | 6<<21 | 7<<12 | 0x18
	set(0x3000+8*5, 0x4000|3)
	set(0x4000+8*6, 0x5000|3)
	set(0x5000+8*7, 0x8000|1)
	require.Nil(t, at(0, address), "only to be read")
	set(0x5000+8*7, 0x8000|3)
	require.EqualValues(t, 0x8018, at(0, address))
	require.Nil(t, at(0, address+0x1000))
	set(0x4000+8*6, 3|iommuLargePage)
	require.EqualValues(t, 0x7018, at(0, address), "a page of 2 MiB")
	set(context, 0x6000|iommuPresent)
	set(context+8, 2) // four levels
	set(0x6000, 0x3000|3)
	require.EqualValues(t, 0x7018, at(0, address))
	commands.Close()
	<-ended
}

func TestOtherMessagesEndAMachine(t *testing.T) {
	m, err := New(512, new(word))
	require.NoError(t, err)
	c, err := net.FileConn(m.Files()[1])
	require.NoError(t, err)
	served := make(chan error)
	go func() { served <- m.Serve() }()
	qemu{t, c.(*net.UnixConn)}.send(cmdConfigRead, nil, uint64(0))
	require.ErrorContains(t, <-served, "message 3 of 8 bytes")
	c.Close()
}
