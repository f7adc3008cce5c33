package tun

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
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
	wake  int      // an event: ends a wait
	fresh bool     // this process has made the device
	takes Offloads // what the kernel takes in a write
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
	d := &device{name: name, fd: fd, wake: -1, fresh: missing != nil}
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
	for _, o := range []Offloads{offloadCsum | offloadTSO | offloadUSO, offloadCsum | offloadTSO, offloadCsum} {
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
	d.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return err
}

// offload has the kernel hand over packets that need what o has.
func (d *device) offload(o Offloads) error {
	bits := 0
	for _, b := range []struct {
		o    Offloads
		bits int
	}{
		{offloadCsum, unix.TUN_F_CSUM},
		{offloadTSO, unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN},
		{offloadUSO, unix.TUN_F_USO4 | unix.TUN_F_USO6},
	} {
		if o&b.o != 0 {
			bits |= b.bits
		}
	}
	return unix.IoctlSetInt(d.fd, unix.TUNSETOFFLOAD, bits)
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

// read reads a virtio header and a packet into buffers, one behind the other. The error is EAGAIN if there is none.
func (d *device) read(buffers ...[]byte) (int, error) {
	for {
		n, err := unix.Readv(d.fd, buffers)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// write hands the kernel a virtio header and a packet.
func (d *device) write(b []byte) error {
	for {
		_, err := unix.Write(d.fd, b)
		if err != unix.EINTR {
			return err
		}
	}
}

// wait waits until there is a packet, interrupt is called, or d has passed.
func (d *device) wait(limit time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}, {Fd: int32(d.wake), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, int(limit/time.Millisecond)); err != nil && err != unix.EINTR {
		return err
	}
	if fds[1].Revents != 0 {
		var b [8]byte
		unix.Read(d.wake, b[:])
	}
	if fds[0].Revents&unix.POLLERR != 0 {
		return fmt.Errorf("device %s is gone", d.name)
	}
	return nil
}

// interrupt ends a wait.
func (d *device) interrupt() { unix.Write(d.wake, []byte{0, 0, 0, 0, 0, 0, 0, 1}) }

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

func (d *device) Close() error {
	unix.Close(d.wake)
	return unix.Close(d.fd)
}
