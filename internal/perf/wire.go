package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxSize is the largest message in bytes. It bounds what a server allocates for
// one connection.
const MaxSize = 16 << 20

const version = 3

type op uint32

const (
	opHello  op = 1 + iota // count is the client's version; reply: the server's
	opVerify               // count bytes both ways; reply: first bad byte, or allGood
	opEcho                 // count messages of size bytes, each sent back; no reply
	opSink                 // count messages of size bytes; reply: bytes received
	opMemory               // reply: bytes of memory of the server's process, after a collection
	opCPU                  // reply: nanoseconds of processor time of the server's process
)

// A command begins every exchange. Little endian:
//
//	0        4      8       12      16      24       32
//	| magic  |  op  |  size | zero  | count |  seed  |
type command struct {
	op    op
	size  uint32 // bytes of one message
	count uint64 // messages; for opVerify, bytes
	seed  uint64 // opVerify: selects the pseudo-random data
}

const (
	magic       = 0x46524550 // "PERF"
	commandSize = 32
	replySize   = 16
)

var (
	errNotPerf = errors.New("the other end is not an sdp-perf of this version")
	errVersion = errors.New("the other end is an sdp-perf of another version")
)

// checkVersion checks the version of the other end.
func checkVersion(v uint64) error {
	if v != version {
		return fmt.Errorf("%w: version %d here, %d there", errVersion, version, v)
	}
	return nil
}

func (c command) put(b *[commandSize]byte) {
	binary.LittleEndian.PutUint32(b[0:], magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(c.op))
	binary.LittleEndian.PutUint32(b[8:], c.size)
	binary.LittleEndian.PutUint32(b[12:], 0)
	binary.LittleEndian.PutUint64(b[16:], c.count)
	binary.LittleEndian.PutUint64(b[24:], c.seed)
}

// parseCommand parses and checks a command. Later code need not check it again.
func parseCommand(b *[commandSize]byte) (command, error) {
	if binary.LittleEndian.Uint32(b[0:]) != magic {
		return command{}, errNotPerf
	}
	c := command{
		op:    op(binary.LittleEndian.Uint32(b[4:])),
		size:  binary.LittleEndian.Uint32(b[8:]),
		count: binary.LittleEndian.Uint64(b[16:]),
		seed:  binary.LittleEndian.Uint64(b[24:]),
	}
	// The size is checked for every command, since the server allocates as much.
	if c.size > MaxSize {
		return command{}, fmt.Errorf("command %d: messages of %d bytes: too large", c.op, c.size)
	}
	switch c.op {
	case opHello, opMemory, opCPU:
	case opVerify:
		if c.count > 1<<40 {
			return command{}, fmt.Errorf("verify: %d bytes: too many", c.count)
		}
	case opEcho, opSink:
		if c.size == 0 || c.count > 1<<32 {
			return command{}, fmt.Errorf("command %d: %d messages of %d bytes: out of range", c.op, c.count, c.size)
		}
	default:
		return command{}, errNotPerf
	}
	return c, nil
}

// A reply consists of magic, zero, and one number.
func putReply(b *[replySize]byte, value uint64) {
	binary.LittleEndian.PutUint64(b[0:], magic)
	binary.LittleEndian.PutUint64(b[8:], value)
}

func parseReply(b *[replySize]byte) (uint64, error) {
	if binary.LittleEndian.Uint64(b[0:]) != magic {
		return 0, errNotPerf
	}
	return binary.LittleEndian.Uint64(b[8:]), nil
}

// noEOF replaces io.EOF in the middle of an exchange by an error that says so.
func noEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the server closed the connection")
	}
	return err
}
