//go:build linux

package qemupci

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"golang.org/x/sys/unix"
)

// Machine is a machine of QEMU that has some functions.
type Machine struct {
	files    []*os.File // QEMU's ends
	devices  []*device
	injector injector
	memory   memory
	iommu    iommu
	size     int
}

// New returns a machine with a number of MiB of memory. The functions are in it from now on.
func New(mebibytes int, functions ...pcimodel.Function) (*Machine, error) {
	m := &Machine{size: mebibytes, injector: injector{wake: make(chan struct{}, 1)}}
	conn, err := m.connect()
	if err != nil {
		return nil, err
	}
	m.injector.conn, m.injector.answers = conn, bufio.NewReader(conn)
	m.iommu.injector, m.iommu.memory = &m.injector, &m.memory
	for _, f := range functions {
		conn, err := m.connect()
		if err != nil {
			m.close()
			return nil, err
		}
		d := &device{machine: m, conn: conn}
		d.slot = pcimodel.NewSlot(f, d)
		m.devices = append(m.devices, d)
	}
	return m, nil
}

// connect makes a pair of sockets, and returns the end that is not QEMU's.
func (m *Machine) connect() (*unixsock.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	m.files = append(m.files, os.NewFile(uintptr(pair[1]), "qemu"))
	own := os.NewFile(uintptr(pair[0]), "model")
	defer own.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		return nil, err
	}
	return unixsock.Own(conn)
}

// Files returns what QEMU inherits. Serve closes them.
func (m *Machine) Files() []*os.File { return m.files }

// Args returns arguments for QEMU, where the first of Files has a descriptor, and the first of the functions an
// address on the bus. Others follow them.
func (m *Machine) Args(fd, address int) []string {
	args := []string{
		"-m", fmt.Sprint(m.size), "-machine", "memory-backend=ram",
		"-object", fmt.Sprintf("memory-backend-memfd,id=ram,size=%dM,share=on", m.size),
		"-chardev", fmt.Sprintf("socket,id=qtest,fd=%d", fd), "-qtest", "chardev:qtest", "-qtest-log", "none",
	}
	for i, d := range m.devices {
		d.address = address + i
		args = append(args, "-device", fmt.Sprintf("x-pci-proxy-dev,fd=%d,addr=%d", fd+1+i, address+i))
	}
	return args
}

// Interrupts returns how many messages the functions have sent to the machine, by function and vector.
func (m *Machine) Interrupts() (sent [][]uint64) {
	for _, d := range m.devices {
		sent = append(sent, d.slot.Interrupts())
	}
	return sent
}

// Serve answers QEMU until it ends. It is called when QEMU was started. The functions are in no
// machine when it returns.
func (m *Machine) Serve() error {
	for _, f := range m.files {
		f.Close()
	}
	m.files = nil
	errs := make([]error, len(m.devices)+1)
	var serving sync.WaitGroup
	for i, d := range m.devices {
		serving.Go(func() {
			errs[i] = d.serve()
			d.slot.Unplug()
		})
	}
	injecting := make(chan error)
	go func() { injecting <- m.injector.run() }()
	serving.Wait()
	close(m.injector.wake)  // no slot sends any more
	m.injector.conn.Close() // QEMU may not have answered
	errs[len(m.devices)] = <-injecting
	m.close()
	for i, err := range errs {
		if gone(err) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}

// gone reports whether an error is that of a socket that is closed, here or at its other end.
func gone(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

func (m *Machine) close() {
	for _, f := range m.files {
		f.Close()
	}
	m.injector.conn.Close()
	for _, d := range m.devices {
		d.conn.Close()
	}
	m.memory.close()
}

// device is a function in a machine, and the socket of its proxy device.
type device struct {
	machine *Machine
	slot    *pcimodel.Slot
	conn    *unixsock.Conn
	address int   // on the bus; does not change once QEMU runs
	fds     []int // received, and not used yet
}

// Message implements pcimodel.Bus.
func (d *device) Message(address uint64, data uint32) {
	d.machine.injector.send(interrupt{address, data})
}

// Memory implements pcimodel.Bus. The IOMMU translates the first byte's address: no word crosses a page.
func (d *device) Memory(address uint64, n int) []byte {
	at, ok := d.machine.iommu.translate(d.address, address)
	if !ok {
		return nil
	}
	return d.machine.memory.at(at, n)
}

// Read implements io.Reader, and keeps the descriptors that come with the bytes.
func (d *device) Read(p []byte) (int, error) {
	n, fds, err := d.conn.ReadFiles(p, maxRegions)
	d.fds = append(d.fds, fds...)
	return n, err
}

// take returns the next n descriptors.
func (d *device) take(n int) ([]int, error) {
	if len(d.fds) < n {
		return nil, fmt.Errorf("QEMU has sent %d descriptors, not %d", len(d.fds), n)
	}
	fds := d.fds[:n]
	d.fds = d.fds[n:]
	return fds, nil
}

// serve answers QEMU until it ends.
func (d *device) serve() error {
	defer func() { unixsock.Discard(d.conn.UID(), d.fds...) }()
	r := bufio.NewReader(d)
	buf := make([]byte, regionsMsgSize)
	for {
		m, err := readMessage(r, buf)
		if err != nil {
			return err
		}
		v, answers, err := d.do(m)
		if err != nil {
			return err
		}
		if answers {
			if _, err := d.conn.Write(reply(v)); err != nil {
				return err
			}
		}
	}
}

// do does what a message asks for. It returns the value of the reply, if there is one.
func (d *device) do(m message) (v uint64, answers bool, err error) {
	switch m.command {
	case cmdSyncMemory:
		regions := m.regions()
		fds, err := d.take(len(regions))
		if err != nil {
			return 0, false, err
		}
		return 0, false, d.machine.memory.set(regions, fds)
	case cmdSetInterrupt:
		fds, err := d.take(interruptFiles)
		unixsock.Discard(d.conn.UID(), fds...)
		return 0, false, err
	case cmdConfigRead:
		c := m.config()
		v = uint64(d.slot.ReadConfig(c.offset, c.size))
	case cmdConfigWrite:
		c := m.config()
		d.slot.WriteConfig(c.offset, c.size, c.value)
	case cmdRead:
		a := m.access()
		v = d.slot.Read(a.address, a.size)
	case cmdWrite:
		a := m.access()
		d.slot.Write(a.address, a.size, a.value)
	case cmdReset:
		d.machine.iommu.reset()
		d.slot.Reset()
	}
	return v, true, nil
}
