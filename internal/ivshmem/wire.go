//go:build linux

package ivshmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

const (
	protocol = 0
	memoryID = -1

	// MaxID is the largest number of a client: the doorbell register has 16 bits for it.
	MaxID = 1<<16 - 1
	// MaxVectors is the most vectors that a client can have.
	MaxVectors = 64
)

// message is one message. Its file is -1 where there is none.
type message struct {
	value int64
	file  int
}

// send sends a message. The file stays the caller's.
func send(c *net.UnixConn, m message) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(m.value))
	var rights []byte
	if m.file >= 0 {
		rights = unix.UnixRights(m.file)
	}
	n, _, err := c.WriteMsgUnix(b[:], rights, nil)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// receive receives a message. Its file is the caller's.
func receive(c *net.UnixConn) (m message, err error) {
	m.file = -1
	defer func() {
		if err != nil && m.file >= 0 {
			unix.Close(m.file)
		}
	}()
	var b [8]byte
	rights := make([]byte, unix.CmsgSpace(4))
	for have := 0; have < len(b); {
		n, oob, flags, _, err := c.ReadMsgUnix(b[have:], rights)
		if err != nil {
			return m, err
		}
		if n == 0 && oob == 0 {
			if have > 0 {
				return m, io.ErrUnexpectedEOF
			}
			return m, io.EOF
		}
		file, err := takeFile(rights[:oob])
		if file >= 0 && m.file >= 0 {
			unix.Close(file)
			return m, errors.New("ivshmem: two descriptors with one message")
		}
		if file >= 0 {
			m.file = file
		}
		if err == nil && flags&unix.MSG_CTRUNC != 0 {
			err = errors.New("ivshmem: more descriptors than fit")
		}
		if err != nil {
			return m, err
		}
		have += n
	}
	m.value = int64(binary.LittleEndian.Uint64(b[:]))
	return m, nil
}

// takeFile returns the descriptor in a control message, or -1.
func takeFile(rights []byte) (int, error) {
	if len(rights) == 0 {
		return -1, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return -1, fmt.Errorf("ivshmem: control message: %w", err)
	}
	file := -1
	for i := range messages {
		files, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return file, fmt.Errorf("ivshmem: control message: %w", err)
		}
		for _, f := range files {
			unix.CloseOnExec(f)
			if file >= 0 {
				unix.Close(f)
				err = errors.New("ivshmem: two descriptors with one message")
				continue
			}
			file = f
		}
		if err != nil {
			return file, err
		}
	}
	return file, nil
}
