//go:build linux

package ivshmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
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
func send(c *unixsock.Conn, m message) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(m.value))
	var files []int
	if m.file >= 0 {
		files = append(files, m.file)
	}
	_, err := c.WriteFiles(b[:], files...)
	return err
}

// receive receives a message. Its file is the caller's, who closes it by unixsock.Discard.
func receive(c *unixsock.Conn) (m message, err error) {
	m.file = -1
	defer func() {
		if err != nil {
			discard(c, m.file)
		}
	}()
	var b [8]byte
	for have := 0; have < len(b); {
		n, files, err := c.ReadFiles(b[have:], 1)
		switch {
		case err == io.EOF && have > 0:
			return m, io.ErrUnexpectedEOF
		case err != nil:
			return m, fmt.Errorf("ivshmem: %w", err)
		case len(files) > 0 && m.file >= 0:
			discard(c, files[0])
			return m, errors.New("ivshmem: two descriptors with one message")
		case len(files) > 0:
			m.file = files[0]
		}
		have += n
	}
	m.value = int64(binary.LittleEndian.Uint64(b[:]))
	return m, nil
}

// discard closes a descriptor that came over c, if it is one.
func discard(c *unixsock.Conn, file int) {
	if file >= 0 {
		unixsock.Discard(c.UID(), file)
	}
}
