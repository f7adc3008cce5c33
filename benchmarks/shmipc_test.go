package benchmarks

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	shmipc "github.com/cloudwego/shmipc-go"
)

// The two ways to use github.com/cloudwego/shmipc-go: the stream's Read and Write, as of any
// net.Conn; and its own, where the writer reserves shared memory and copies its message into
// it, and the reader is given the bytes in place and does not touch them, which is in its
// favour.
const (
	streamAPI = "shmipc"
	bufferAPI = "shmipc-buffer"
)

func shmipcTransports() (list []measured) {
	for _, api := range []string{streamAPI, bufferAPI} {
		list = append(list, measured{api,
			func(b *testing.B, size int) { byShmipc(b, api, size, 0) },
			func(b *testing.B, size int) { byShmipc(b, api, size, max(1, min(4096, 2<<20/size))) },
		})
	}
	return list
}

// attempts is how often a measurement is tried until all of it went through shared memory.
// The library's list of free memory can appear empty for a moment when both processes use it.
const attempts = 3

// byShmipc measures round trips, or one way in stretches. The library has no flow control: a
// writer that is ahead of its reader takes all of the shared memory, and then writes through
// the Unix socket, into memory of the reader without bound. So one way the reader
// acknowledges each stretch of messages, and the writer is at most two of them ahead.
func byShmipc(b *testing.B, api string, size, stretch int) {
	path := filepath.Join(b.TempDir(), "socket")
	if _, err := startFor(b, "shmipc", nil, path, api).line(); err != nil {
		b.Fatal(err)
	}
	var err error
	for range attempts {
		if err = onceByShmipc(b, path, api, size, stretch); err == nil {
			return
		}
	}
	b.Skip(err)
}

// onceByShmipc has a session of its own, since a session fixes the sizes in shared memory.
func onceByShmipc(b *testing.B, path, api string, size, stretch int) error {
	manager, err := shmipc.NewSessionManager(&shmipc.SessionManagerConfig{
		Config: shmipcConfig(size), Network: "unix", Address: path,
		SessionNum: 1, MaxStreamNum: 1, StreamMaxIdleTime: time.Minute,
	})
	if err != nil {
		return err
	}
	defer manager.Close()
	s, err := manager.GetStream()
	if err != nil {
		return err
	}
	defer s.Close()
	head := binary.LittleEndian.AppendUint32(nil, uint32(size))
	if _, err := s.Write(binary.LittleEndian.AppendUint32(head, uint32(stretch))); err != nil {
		return err
	}
	m := newMessenger(s, api, size)
	if err := m.run(b.N/8+1, stretch); err != nil { // warms up
		return err
	}
	if stretch > 0 {
		b.SetBytes(int64(size))
	}
	b.ResetTimer()
	err = m.run(b.N, stretch)
	b.StopTimer()
	if err != nil {
		return err
	}
	if _, memory, _ := s.Session().GetMetrics(); memory.FallbackWriteCount > 0 {
		return fmt.Errorf("%d writes found no shared memory free and took the Unix socket", memory.FallbackWriteCount)
	}
	return nil
}

// messenger sends and receives messages of one size.
type messenger struct {
	s       *shmipc.Stream
	inPlace bool
	out, in []byte
}

func newMessenger(s *shmipc.Stream, api string, size int) *messenger {
	return &messenger{s, api == bufferAPI, make([]byte, size), make([]byte, size)}
}

func (m *messenger) send() error {
	if !m.inPlace {
		_, err := m.s.Write(m.out)
		return err
	}
	b, err := m.s.BufferWriter().Reserve(len(m.out))
	if err != nil {
		return err
	}
	copy(b, m.out)
	return m.s.Flush(false)
}

func (m *messenger) receive() error {
	if !m.inPlace {
		_, err := io.ReadFull(m.s, m.in)
		return err
	}
	if _, err := m.s.BufferReader().ReadBytes(len(m.in)); err != nil {
		return err
	}
	m.s.BufferReader().ReleasePreviousRead()
	return nil
}

// run makes n round trips, or sends n messages and the rest of the last stretch, and waits
// until all are acknowledged.
func (m *messenger) run(n, stretch int) error {
	if stretch == 0 {
		for range n {
			if err := m.send(); err != nil {
				return err
			}
			if err := m.receive(); err != nil {
				return err
			}
		}
		return nil
	}
	var ack [1]byte
	total := (n + stretch - 1) / stretch
	for sent, acked := 0, 0; acked < total; {
		if sent < total && sent-acked < 2 {
			for range stretch {
				if err := m.send(); err != nil {
					return err
				}
			}
			sent++
			continue
		}
		if _, err := io.ReadFull(m.s, ack[:]); err != nil {
			return err
		}
		acked++
	}
	return nil
}

// serveShmipc is the role of the other process. Its arguments are the path of the socket and
// the API. It writes a line when it listens.
func serveShmipc(args []string) error {
	ln, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go answerShmipc(conn, args[1])
		}
	}()
	fmt.Println("ready")
	return untilParentEnds()
}

// answerShmipc serves one session, whose client reports what it misses.
func answerShmipc(conn net.Conn, api string) {
	s, err := shmipc.Server(conn, shmipcConfig(64))
	if err != nil {
		conn.Close()
		return
	}
	defer s.Close()
	stream, err := s.AcceptStream()
	if err != nil {
		return
	}
	defer stream.Close()
	var head [8]byte
	if _, err := io.ReadFull(stream, head[:]); err != nil {
		return
	}
	size, stretch := binary.LittleEndian.Uint32(head[:]), int(binary.LittleEndian.Uint32(head[4:]))
	m := newMessenger(stream, api, int(size))
	for i := 1; m.receive() == nil; i++ {
		var err error
		switch {
		case stretch == 0:
			err = m.send()
		case i%stretch == 0:
			_, err = stream.Write(head[:1])
		}
		if err != nil {
			return
		}
	}
}

// shmipcConfig configures pieces of shared memory that a message fits into, as the library
// advises. Otherwise the settings are those of the library's own benchmark, except that
// shared memory is 32 MiB, its default, rather than 256 MiB, which is faster, since it stays in
// caches.
func shmipcConfig(size int) *shmipc.Config {
	const levelNoPrint = 5 // the library does not export it
	shmipc.SetLogLevel(levelNoPrint)
	c := shmipc.DefaultConfig()
	c.QueueCap = 65536 - 8 // arm64 requires a multiple of 8
	c.MemMapType = shmipc.MemMapTypeMemFd
	c.LogOutput = io.Discard
	c.InitializeTimeout = patience // a client does not notice that the server has given up
	piece := uint32(size+256+7) &^ 7
	// There is room for more than four stretches, even of the largest messages.
	c.ShareMemoryBufferCap = max(32<<20, 16*piece)
	c.BufferSliceSizes = []*shmipc.SizePercentPair{
		{Size: piece, Percent: 70}, {Size: 16 << 10, Percent: 20}, {Size: 64 << 10, Percent: 10},
	}
	return c
}
