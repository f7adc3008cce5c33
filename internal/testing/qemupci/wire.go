//go:build linux

package qemupci

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Commands of the protocol (include/hw/remote/mpqemu-link.h of QEMU's tree).
const (
	cmdSyncMemory = iota // no reply
	cmdReply
	cmdConfigWrite
	cmdConfigRead
	cmdWrite
	cmdRead
	cmdSetInterrupt // no reply
	cmdReset
)

// Sizes of messages, in bytes.
const (
	headerSize     = 16 // command, of 32 bits, and size, of 64 bits at offset 8
	configMsgSize  = 12 // address, value, length
	accessMsgSize  = 24 // address, value, of 64 bits each, size, of 32 bits, whether it is memory
	maxRegions     = 8
	regionsMsgSize = 3 * 8 * maxRegions // addresses, sizes, offsets in their files
	replySize      = 8
	interruptFiles = 2
)

// message is a message of QEMU's.
type message struct {
	command int32
	body    []byte // valid until the next one is read
}

// readMessage reads a message. It uses buf, of regionsMsgSize bytes.
func readMessage(r io.Reader, buf []byte) (m message, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return m, err
	}
	m.command = int32(binary.LittleEndian.Uint32(header[:]))
	size := binary.LittleEndian.Uint64(header[8:])
	want, ok := map[int32]uint64{cmdSyncMemory: regionsMsgSize, cmdConfigWrite: configMsgSize, cmdConfigRead: configMsgSize,
		cmdWrite: accessMsgSize, cmdRead: accessMsgSize, cmdSetInterrupt: 0, cmdReset: 0}[m.command]
	if !ok || size != want {
		return m, fmt.Errorf("message %d of %d bytes from QEMU", m.command, size)
	}
	m.body = buf[:size]
	_, err = io.ReadFull(r, m.body)
	return m, err
}

// reply returns the reply to a message.
func reply(v uint64) []byte {
	var b [headerSize + replySize]byte
	binary.LittleEndian.PutUint32(b[:], cmdReply)
	binary.LittleEndian.PutUint64(b[8:], replySize)
	binary.LittleEndian.PutUint64(b[headerSize:], v)
	return b[:]
}

// configAccess is an access to config space.
type configAccess struct {
	offset, size int
	value        uint32
}

func (m message) config() configAccess {
	return configAccess{
		offset: int(binary.LittleEndian.Uint32(m.body)),
		value:  binary.LittleEndian.Uint32(m.body[4:]),
		size:   int(binary.LittleEndian.Uint32(m.body[8:])),
	}
}

// access is an access to a BAR.
type access struct {
	address, value uint64
	size           int
}

func (m message) access() access {
	return access{
		address: binary.LittleEndian.Uint64(m.body),
		value:   binary.LittleEndian.Uint64(m.body[8:]),
		size:    int(binary.LittleEndian.Uint32(m.body[16:])),
	}
}

// region is a part of the machine's memory.
type region struct {
	address, size, offset uint64
}

// regions returns the parts of the memory. There is a file with each.
func (m message) regions() (list []region) {
	for i := range maxRegions {
		word := func(k int) uint64 { return binary.LittleEndian.Uint64(m.body[8*(k*maxRegions+i):]) }
		if r := (region{address: word(0), size: word(1), offset: word(2)}); r.size > 0 {
			list = append(list, r)
		}
	}
	return list
}
