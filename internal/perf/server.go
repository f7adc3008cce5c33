package perf

import (
	"errors"
	"io"
	"net"
	"sync"
)

// readSize is the receiver's buffer in the one-way test, in bytes.
const readSize = 64 << 10

// Server answers the commands of Run, on any number of listeners.
type Server struct {
	// Refused, if set, is called for each client of another version, with an error that
	// has both numbers. It is set before Serve, and called by several goroutines.
	Refused func(error)

	serve func(net.Conn) error // immutable

	mu      sync.Mutex
	closed  bool                   // guarded by mu
	closers map[io.Closer]struct{} // listeners and connections; guarded by mu
	work    sync.WaitGroup         // one for each Serve and each connection
}

// NewServer returns a server that has no listener yet.
func NewServer() *Server { return newServer(serveConn) }

func newServer(serve func(net.Conn) error) *Server {
	return &Server{serve: serve, closers: make(map[io.Closer]struct{})}
}

// Serve accepts connections from ln until Close, and then returns nil. It owns ln.
func (s *Server) Serve(ln net.Listener) error {
	if !s.add(ln) {
		return nil
	}
	defer s.remove(ln)
	for {
		c, err := ln.Accept()
		if err != nil {
			if s.isClosed() {
				return nil
			}
			return err
		}
		if !s.add(c) {
			return nil
		}
		go func() {
			defer s.remove(c)
			// The client reports other errors, since it knows what it asked for.
			if err := s.serve(c); errors.Is(err, errVersion) && s.Refused != nil {
				s.Refused(err)
			}
		}()
	}
}

// Close closes every listener and connection and waits until none is in use.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.closers {
		c.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// add takes ownership of c. After Close it closes c and returns false.
func (s *Server) add(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	s.closers[c] = struct{}{}
	s.work.Add(1)
	return true
}

func (s *Server) remove(c io.Closer) {
	s.mu.Lock()
	delete(s.closers, c)
	s.mu.Unlock()
	c.Close()
	s.work.Done()
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// serveConn answers commands until the client closes.
func serveConn(c net.Conn) error {
	var (
		head  [commandSize]byte
		reply [replySize]byte
		buf   []byte
	)
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		cmd, err := parseCommand(&head)
		if err != nil {
			return err
		}
		if need := cmd.buffer(); len(buf) < need {
			buf = make([]byte, need)
		}
		value := uint64(version)
		switch cmd.op {
		case opVerify:
			value, err = serveVerify(c, cmd)
		case opEcho:
			err = serveEcho(c, buf[:cmd.size], cmd.count)
		case opSink:
			value, err = serveSink(c, buf[:readSize], cmd.count*uint64(cmd.size))
		case opMemory:
			value, err = memory()
		case opCPU:
			value, err = cpu()
		}
		if err != nil {
			return err
		}
		if cmd.op == opEcho {
			continue
		}
		putReply(&reply, value)
		if _, err := c.Write(reply[:]); err != nil {
			return err
		}
		if cmd.op == opHello {
			if err := checkVersion(cmd.count); err != nil {
				return err // once the client has the same from the reply
			}
		}
	}
}

// serveEcho sends count messages of len(buf) bytes back. It does not allocate.
func serveEcho(c net.Conn, buf []byte, count uint64) error {
	r := io.Reader(c)
	for range count {
		if _, err := io.ReadFull(r, buf); err != nil {
			return err
		}
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// serveSink reads total bytes and returns how many it received. It does not
// allocate.
func serveSink(c net.Conn, buf []byte, total uint64) (received uint64, err error) {
	for received < total {
		// It does not read beyond total, because a command follows.
		n, err := c.Read(buf[:min(uint64(len(buf)), total-received)])
		received += uint64(n)
		if err != nil && received < total {
			return received, err
		}
	}
	return received, nil
}

// serveVerify sends and checks count bytes at the same time.
func serveVerify(c net.Conn, cmd command) (uint64, error) {
	sent := make(chan error, 1)
	go func() { sent <- writePattern(c, newPattern(cmd.seed, toClient), cmd.count) }()
	bad, err := checkPattern(c, newPattern(cmd.seed, toServer), cmd.count)
	if err != nil {
		c.Close() // wakes the writer
	}
	if err := errors.Join(err, <-sent); err != nil {
		return 0, err
	}
	if bad != nil {
		return bad.at, nil
	}
	return allGood, nil
}

// buffer returns how many bytes the server needs. It is no more than necessary,
// since an idle connection keeps them.
func (c command) buffer() int {
	switch c.op {
	case opEcho:
		return int(c.size)
	case opSink:
		return readSize
	}
	return 0
}
