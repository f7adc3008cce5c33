//go:build linux

package vfio

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests and structures of linux/vfio.h.
const (
	getAPIVersion  = 0x3b64 + iota // of a container
	checkExtension                 // of a container
	setIOMMU                       // of a container
	getGroupStatus
	setContainer // of a group
	unsetContainer
	getDevice // of a group
	getDeviceInfo
	getRegionInfo
	getInterruptInfo
	setInterrupts
)

const (
	api     = 0
	type1v2 = 3

	groupViable = 1

	regionMaps = 4

	interruptEventFD = 1
	dataNone         = 1
	dataEventFD      = 4
	actionTrigger    = 32
)

type groupStatus struct{ size, flags uint32 }

type regionInfo struct {
	size, flags, index, _ uint32
	bytes, offset         uint64
}

type interruptInfo struct{ size, flags, index, count uint32 }

type interruptSet struct {
	size, flags, index, _, count uint32
	files                        [maxInterrupts]int32
}

// maxInterrupts is how many vectors this package hands over. A function may have more.
const maxInterrupts = 64

func ioctl(fd, request int, arg uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), arg)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// ioctlOf passes a structure, which the kernel may change.
func ioctlOf[T any](fd, request int, arg *T) (int, error) {
	n, err := ioctl(fd, request, uintptr(unsafe.Pointer(arg)))
	runtime.KeepAlive(arg)
	return n, err
}

func (g *groupStatus) get(fd int) error {
	g.size = uint32(unsafe.Sizeof(*g))
	_, err := ioctlOf(fd, getGroupStatus, g)
	return err
}

func (r *regionInfo) get(fd int, index int) error {
	r.size, r.index = uint32(unsafe.Sizeof(*r)), uint32(index)
	_, err := ioctlOf(fd, getRegionInfo, r)
	return err
}

func (i *interruptInfo) get(fd int, index int) error {
	i.size, i.index = uint32(unsafe.Sizeof(*i)), uint32(index)
	_, err := ioctlOf(fd, getInterruptInfo, i)
	return err
}

// set hands over count files, or takes all interrupts back if count is 0.
func (s *interruptSet) set(fd, index, count int) error {
	head := unsafe.Offsetof(s.files)
	s.size, s.index, s.count = uint32(head+uintptr(count)*4), uint32(index), uint32(count)
	s.flags = dataEventFD | actionTrigger
	if count == 0 {
		s.flags = dataNone | actionTrigger
	}
	_, err := ioctlOf(fd, setInterrupts, s)
	return err
}

// deviceOf returns the descriptor of a group's device.
func deviceOf(group int, address string) (int, error) {
	name, err := unix.BytePtrFromString(address)
	if err != nil {
		return -1, err
	}
	return ioctlOf(group, getDevice, name)
}

// fileOf passes a descriptor by its address.
func fileOf(fd, request, file int) error {
	f := int32(file)
	_, err := ioctlOf(fd, request, &f)
	return err
}
