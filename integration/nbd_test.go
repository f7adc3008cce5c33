//go:build linux

package integration

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	roles["disk"] = playDisk
	operations["attach"], operations["detach"] = attachDisk, detachDisk
}

// The part of NBD's protocol that follows after both sides know what the disk is. Words are big-endian.
const (
	nbdRequest = 0x25609513 // begins a request of 28 bytes: this, flags, kind, handle, offset, length
	nbdReply   = 0x67446698 // begins a reply of 16 bytes: this, error, handle

	nbdRead       = 0
	nbdWrite      = 1
	nbdDisconnect = 2
)

// disk is one of memory that other machines attach by NBD.
type disk struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

// playDisk serves a disk at an address, of a number of bytes. Each line is answered with the sum of its bytes.
func playDisk(p *self) error {
	size, err := strconv.Atoi(p.args[1])
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", p.args[0])
	if err != nil {
		return err
	}
	d := &disk{b: make([]byte, size)}
	defer serveUntil(ln, eachConn(func(c net.Conn) {
		for err := error(nil); err == nil; err = d.serve(c) {
		}
	}))()
	p.printf("ready")
	for {
		if _, ok := p.readLine(); !ok {
			return nil
		}
		d.mu.Lock()
		p.printf("%x", sha256.Sum256(d.b))
		d.mu.Unlock()
	}
}

// serve answers a request.
func (d *disk) serve(c net.Conn) error {
	request, reply := make([]byte, 28), make([]byte, 16)
	if _, err := io.ReadFull(c, request); err != nil {
		return err
	}
	kind, offset, n := binary.BigEndian.Uint16(request[6:]), binary.BigEndian.Uint64(request[16:]), uint64(binary.BigEndian.Uint32(request[24:]))
	if binary.BigEndian.Uint32(request) != nbdRequest || offset+n > uint64(len(d.b)) || kind > nbdDisconnect {
		return fmt.Errorf("request %x", request)
	}
	if kind == nbdDisconnect {
		return io.EOF
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	binary.BigEndian.PutUint32(reply, nbdReply)
	copy(reply[8:], request[8:16])
	part := d.b[offset : offset+n]
	if kind == nbdWrite {
		if _, err := io.ReadFull(c, part); err != nil {
			return err
		}
		part = nil
	}
	_, err := c.Write(append(reply, part...))
	return err
}

// Requests of ioctl(2), as <linux/nbd.h> has them.
const (
	nbdSetSocket    = 0xab00
	nbdSetBlockSize = 0xab01
	nbdDoIt         = 0xab03
	nbdClearSocket  = 0xab04
	nbdSetBlocks    = 0xab07
	nbdEnd          = 0xab08
)

// attached is the disk that the kernel has as /dev/nbd0.
var attached struct {
	file  *os.File
	ended chan error
}

// attachDisk has the kernel attach a disk at an address, of a number of bytes.
func attachDisk(w []string) (string, error) {
	const block = 4096
	size, err := strconv.Atoi(w[1])
	if err != nil {
		return "", err
	}
	c, err := net.DialTimeout("tcp", w[0], testTimeout/2)
	if err != nil {
		return "", err
	}
	defer c.Close() // the kernel has it
	socket, err := c.(*net.TCPConn).File()
	if err != nil {
		return "", err
	}
	defer socket.Close()
	if attached.file, err = os.OpenFile("/dev/nbd0", os.O_RDWR, 0); err != nil {
		return "", err
	}
	fd := int(attached.file.Fd())
	for _, set := range [][2]int{{nbdSetBlockSize, block}, {nbdSetBlocks, size / block}, {nbdSetSocket, int(socket.Fd())}} {
		if err := unix.IoctlSetInt(fd, uint(set[0]), set[1]); err != nil {
			return "", fmt.Errorf("request %#x: %w", set[0], err)
		}
	}
	attached.ended = make(chan error, 1)
	go func() { attached.ended <- unix.IoctlSetInt(fd, nbdDoIt, 0) }()
	for end := time.Now().Add(testTimeout / 2); ; time.Sleep(time.Millisecond) { // until it has the size
		blocks, err := os.ReadFile("/sys/block/nbd0/size")
		if err != nil || string(blocks) != "0\n" {
			return "", err
		}
		if time.Now().After(end) {
			return "", errStuck
		}
	}
}

// detachDisk undoes attachDisk, when all is written.
func detachDisk([]string) (string, error) {
	f := attached.file
	fd := int(f.Fd())
	err := errors.Join(f.Sync(), unix.IoctlSetInt(fd, nbdEnd, 0), <-attached.ended, unix.IoctlSetInt(fd, nbdClearSocket, 0))
	return "", errors.Join(err, f.Close())
}
