package tun

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ringPackets is how many packets the kernel keeps until they are read. It drops what is beyond.
const ringPackets = 1000

// settleTime is a little longer than the kernel takes until all know of a carrier.
const settleTime = 1500 * time.Millisecond

// device is a TUN device of which this process is the reader.
type device struct {
	name  string
	index int
	fd    int
	file  *os.File // of fd, for Go's poller
	fresh bool     // this process has made the device
	takes uint32   // the offloads that the kernel has

	// Of read, which has one caller at a time.
	raw    syscall.RawConn
	readv  func(fd uintptr) bool
	to     [2][]byte
	wait   bool
	n      int
	failed error
}

// openDevice attaches to a device, or makes one, which ends with the process.
func openDevice(name string) (*device, error) {
	_, missing := net.InterfaceByName(name)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || err == unix.ENODEV {
		return nil, errors.New("this kernel has no TUN devices: modprobe tun")
	}
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w; give this user read and write access to it", err)
	}
	d := &device{name: name, fd: fd, fresh: missing != nil}
	if err := d.attach(); err != nil {
		unix.Close(fd)
		switch {
		case err == unix.EPERM && missing != nil:
			err = errors.New("there is no such device, and making one needs CAP_NET_ADMIN: run sdp-tun setup as root")
		case err == unix.EPERM:
			err = fmt.Errorf("the device is of another user: run sdp-tun setup --user %d as root", os.Getuid())
		case err == unix.EBUSY:
			err = errors.New("another process has the device, perhaps another sdp-tun of this node; give --device")
		case err == unix.EINVAL:
			err = errors.New("the device is of another kind: give --device, or remove it by sdp-tun remove")
		}
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return d, nil
}

func (d *device) attach() error {
	ifr, err := unix.NewIfreq(d.name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(d.fd, unix.TUNSETIFF, ifr); err != nil {
		return err
	}
	d.carrier(false)
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETVNETHDRSZ, virtioSize); err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETVNETLE, 1); err != nil {
		return err
	}
	const tso = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	for _, o := range []uint32{tso | unix.TUN_F_USO4 | unix.TUN_F_USO6, tso, unix.TUN_F_CSUM} {
		if d.offload(o) == nil {
			d.takes = o
			break
		}
	}
	link, err := net.InterfaceByName(d.name)
	if err != nil {
		return err
	}
	d.index = link.Index
	d.file = os.NewFile(uintptr(d.fd), d.name) // the poller takes it only now that it is a device
	d.raw, err = d.file.SyscallConn()
	d.readv = func(fd uintptr) bool {
		d.n, d.failed = unix.Readv(int(fd), d.to[:])
		return d.failed != unix.EAGAIN || !d.wait
	}
	return err
}

// offload says what the kernel may leave to the peer's: checksums, and the cutting of batches of segments and datagrams.
func (d *device) offload(bits uint32) error {
	return unix.IoctlSetInt(d.fd, unix.TUNSETOFFLOAD, int(bits))
}

// carrier says whether the peer is there. Without it the kernel takes no route over the device.
func (d *device) carrier(on bool) error {
	v := 0
	if on {
		v = 1
	}
	return unix.IoctlSetPointerInt(d.fd, unix.TUNSETCARRIER, v)
}

// settle waits until the kernel's routes know of the carrier, which it tells them later.
func (d *device) settle(on bool) {
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		link, err := net.InterfaceByName(d.name)
		if err != nil || (link.Flags&net.FlagRunning != 0) == on || link.Flags&net.FlagUp == 0 {
			return
		}
	}
}

// readMTU reads the MTU that the device has now.
func (d *device) readMTU() (int, error) {
	link, err := net.InterfaceByName(d.name)
	if err != nil {
		return 0, fmt.Errorf("device %s: %w", d.name, err)
	}
	return link.MTU, nil
}

// errGone reports that the device was removed.
var errGone = errors.New("it was removed")

// check returns an error if the device is not what it was: removed, renamed, or down, by which it has lost its routes.
func (d *device) check() error {
	var err error
	ifr, _ := unix.NewIfreq(d.name)
	switch gone := unix.IoctlIfreq(d.fd, unix.TUNGETIFF, ifr); {
	case gone == unix.EBADFD:
		err = errGone
	case gone != nil:
		err = gone
	case ifr.Name() != d.name:
		err = fmt.Errorf("its name is %s now", ifr.Name())
	default:
		link, missing := net.InterfaceByName(d.name)
		if err = missing; err == nil && link.Flags&net.FlagUp == 0 {
			err = errors.New("it is down")
		}
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", d.name, err)
	}
	return nil
}

// read reads a virtio header and a packet into a and then b. If there is none it waits, or returns EAGAIN. Behind the
// deadline that was set it fails with os.ErrDeadlineExceeded, with a packet or without.
func (d *device) read(wait bool, a, b []byte) (int, error) {
	for {
		d.wait, d.to = wait, [2][]byte{a, b}
		err := d.raw.Read(d.readv)
		if err == nil {
			err = d.failed
		}
		if err == unix.EBADFD {
			err = errGone
		}
		if err != unix.EINTR {
			return d.n, err
		}
	}
}

// write hands the kernel a virtio header and a packet.
func (d *device) write(b []byte) error {
	for {
		_, err := unix.Write(d.fd, b)
		if err == unix.EBADFD {
			err = errGone
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// persist makes a device stay when its process ends, for a user, or has it end with it.
func (d *device) persist(on bool, uid int) error {
	if !on {
		return unix.IoctlSetInt(d.fd, unix.TUNSETPERSIST, 0)
	}
	if err := unix.IoctlSetInt(d.fd, unix.TUNSETOWNER, uid); err != nil {
		return err
	}
	return unix.IoctlSetInt(d.fd, unix.TUNSETPERSIST, 1)
}

func (d *device) Close() error { return d.file.Close() }
