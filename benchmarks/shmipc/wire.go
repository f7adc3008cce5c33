package main

import (
	"encoding/binary"
	"errors"
	"io"

	shmipc "github.com/cloudwego/shmipc-go"
)

// A stream begins with a header, and then carries messages until it is closed:
//
//	0      4         8
//	| size | stretch |
//
// stretch is how many messages the reader acknowledges with one byte. If it is 0,
// each message is sent back.
type header struct {
	size    int
	stretch int
}

const headerSize = 8

func (h header) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(h.size))
	return binary.LittleEndian.AppendUint32(b, uint32(h.stretch))
}

var errHeader = errors.New("a header out of range")

const maxSize = 16 << 20

func parseHeader(b []byte) (header, error) {
	h := header{int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))}
	if h.size < 1 || h.size > maxSize {
		return h, errHeader
	}
	return h, nil
}

// A stretch is about this many bytes.
const (
	stretchBytes    = 2 << 20
	stretchMessages = 4096
)

func stretchOf(size int) int { return max(1, min(stretchMessages, stretchBytes/size)) }

// messenger sends and receives messages of one size, by one of the two APIs.
type messenger interface {
	send() error
	receive() error
}

// byStream uses Read and Write.
type byStream struct {
	s       *shmipc.Stream
	out, in []byte
}

func (m *byStream) send() error {
	_, err := m.s.Write(m.out)
	return err
}

func (m *byStream) receive() error {
	_, err := io.ReadFull(m.s, m.in)
	return err
}

// byBuffer uses the shared memory in place.
type byBuffer struct {
	s   *shmipc.Stream
	out []byte
}

func (m *byBuffer) send() error {
	b, err := m.s.BufferWriter().Reserve(len(m.out))
	if err != nil {
		return err
	}
	copy(b, m.out)
	return m.s.Flush(false)
}

func (m *byBuffer) receive() error {
	if _, err := m.s.BufferReader().ReadBytes(len(m.out)); err != nil {
		return err
	}
	m.s.BufferReader().ReleasePreviousRead()
	return nil
}

func newMessenger(s *shmipc.Stream, api string, size int) messenger {
	if api == streamAPI {
		return &byStream{s, make([]byte, size), make([]byte, size)}
	}
	return &byBuffer{s, make([]byte, size)}
}

// config configures pieces of shared memory that a message fits into, as the
// library advises.
func config(size int, log io.Writer) *shmipc.Config {
	c := shmipc.DefaultConfig()
	c.QueueCap = 65536 - 8 // arm64 requires a multiple of 8
	c.MemMapType = shmipc.MemMapTypeMemFd
	c.LogOutput = log
	piece := uint32(size+256+7) &^ 7
	// There is room for more than four stretches, even of the largest messages.
	c.ShareMemoryBufferCap = max(32<<20, 16*piece)
	c.BufferSliceSizes = []*shmipc.SizePercentPair{
		{Size: piece, Percent: 70}, {Size: 16 << 10, Percent: 20}, {Size: 64 << 10, Percent: 10},
	}
	return c
}
