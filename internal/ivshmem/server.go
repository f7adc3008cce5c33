//go:build linux

package ivshmem

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"golang.org/x/sys/unix"
)

// Options are what a server hands out.
type Options struct {
	Size int64 // bytes of the memory, a power of two from MinSize to MaxSize; 0 with File
	// File, if not "", is the path of the file that is the memory, and has its size. Without it the server makes memory
	// that cannot be made smaller.
	File    string
	Peers   int // clients at the same time, from 2 to 16
	Vectors int // interrupts of each client, from 1 to MaxVectors
	// Log, if not nil, is called with one line for each client that comes, goes or is refused.
	Log func(line string)
}

// Limits of a memory, in bytes.
const (
	MinSize = 1 << 20
	MaxSize = 1 << 40
	// MaxPeers is the most clients that one memory is divided among.
	MaxPeers = 16
)

// IsSize reports whether a memory may have n bytes.
func IsSize(n int64) bool { return n >= MinSize && n <= MaxSize && n&(n-1) == 0 }

// Check returns an error that says what is wanted if the options are out of their ranges.
func (o *Options) Check() error {
	switch {
	case !IsSize(o.Size):
		return fmt.Errorf("memory of %d bytes, want a power of two from %d to %d", o.Size, MinSize, int64(MaxSize))
	case o.Peers < 2 || o.Peers > MaxPeers:
		return fmt.Errorf("%d peers, want 2 to %d", o.Peers, MaxPeers)
	case o.Vectors < 1 || o.Vectors > MaxVectors:
		return fmt.Errorf("%d vectors, want 1 to %d", o.Vectors, MaxVectors)
	}
	return nil
}

// Server serves one memory.
type Server struct {
	options Options // immutable
	memory  int     // immutable; open until Close
	running sync.WaitGroup

	mu      sync.Mutex
	clients map[int64]*served
	next    int64              // the next client's number
	ln      *unixsock.Listener // of Serve
	closed  bool
}

// served is a client of a server. The server's lock guards it, but for conn.
type served struct {
	id      int64
	conn    *unixsock.Conn
	vectors []int
	outbox  []message     // what is still to be sent; their files are dup'ed for it
	more    chan struct{} // capacity 1: the outbox is not empty, or the client is dropped
	dropped bool
}

// maxNumber is above the numbers of clients. A number is not given again while there are clients
// who knew the first one with it: QEMU, up to 11 at least, uses memory that it has freed when a number
// comes back.
const maxNumber = 65535

// maxOutbox is how many messages may wait for a client to read. All that others' coming and going
// makes in a row is less.
const maxOutbox = 4 * MaxPeers * MaxVectors

// NewServer makes the memory.
func NewServer(o Options) (*Server, error) {
	fd, err := -1, error(nil)
	if o.File != "" {
		fd, err = o.openFile()
	}
	if err == nil {
		err = o.Check()
	}
	if err == nil && fd < 0 {
		fd, err = memfd.Create("ntbnet-ivshmem", o.Size)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("ivshmem: %w", err)
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return &Server{options: o, memory: fd, clients: make(map[int64]*served)}, nil
}

// openFile opens File, and sets Size.
func (o *Options) openFile() (fd int, err error) {
	fd, err = unix.Open(o.File, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", o.File, err)
	}
	if err := inMemory(fd); err != nil {
		return fd, fmt.Errorf("%s: %w (want one below /dev/shm)", o.File, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	o.Size = st.Size
	return fd, err
}

// Memory returns how many bytes the memory has.
func (s *Server) Memory() int64 { return s.options.Size }

// Serve accepts clients of a listener until Close, which also closes the listener. It is
// called once.
func (s *Server) Serve(ln *unixsock.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errors.Join(net.ErrClosed, ln.Close())
	}
	s.ln = ln
	s.mu.Unlock()
	for {
		conn, err := ln.AcceptConn()
		if err != nil {
			return err
		}
		s.add(conn)
	}
}

// add takes a client in, or refuses it.
func (s *Server) add(conn *unixsock.Conn) {
	c := &served{conn: conn, more: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := error(net.ErrClosed)
	if !s.closed {
		err = s.admit(c)
	}
	if err != nil {
		conn.Close()
		s.options.Log(fmt.Sprintf("a client is refused: %v", err))
		return
	}
	s.options.Log(fmt.Sprintf("client %d has come (%d of %d)", c.id, len(s.clients), s.options.Peers))
	s.running.Go(func() { s.write(c) })
	s.running.Go(func() { s.read(c) })
}

// admit gives a client a number and interrupts, and tells all of all. The caller holds mu.
func (s *Server) admit(c *served) error {
	if len(s.clients) >= s.options.Peers {
		return fmt.Errorf("there are %d, as many as there may be", s.options.Peers)
	}
	if len(s.clients) == 0 {
		s.next = 0
	}
	if s.next == maxNumber {
		return fmt.Errorf("%d have come since this server had none, and each has its own number: start it anew", maxNumber)
	}
	c.id = s.next
	for range s.options.Vectors {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			c.close()
			return fmt.Errorf("make eventfd: %w", err)
		}
		c.vectors = append(c.vectors, fd)
	}
	c.post(message{protocol, -1})
	c.post(message{c.id, -1})
	c.post(message{memoryID, s.memory})
	for _, other := range s.clients {
		for i := range c.vectors {
			c.post(message{other.id, other.vectors[i]})
			other.post(message{c.id, c.vectors[i]})
		}
	}
	for _, fd := range c.vectors {
		c.post(message{c.id, fd})
	}
	s.clients[c.id] = c
	s.next++
	return nil
}

// post puts a message into the outbox. A client that reads nothing is dropped. The caller holds
// the server's lock.
func (c *served) post(m message) {
	if c.dropped {
		return
	}
	if m.file >= 0 {
		// The file's owner may go before this client has read the message.
		fd, err := unix.FcntlInt(uintptr(m.file), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			c.drop()
			return
		}
		m.file = fd
	}
	c.outbox = append(c.outbox, m)
	if len(c.outbox) > maxOutbox {
		c.drop()
	}
	c.wake()
}

func (c *served) wake() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// drop ends a client's connection. Its goroutines do the rest. The caller holds the server's
// lock.
func (c *served) drop() {
	c.dropped = true
	for _, m := range c.outbox {
		closeFile(m.file)
	}
	c.outbox = nil
	c.conn.Close()
	c.wake()
}

// take returns what is to be sent next.
func (s *Server) take(c *served) (batch []message, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch, c.outbox = c.outbox, nil
	return batch, !c.dropped
}

// write sends what is posted to a client.
func (s *Server) write(c *served) {
	for range c.more {
		batch, more := s.take(c)
		for _, m := range batch {
			if more {
				more = send(c.conn, m) == nil
			}
			closeFile(m.file)
		}
		if !more {
			break
		}
	}
	s.remove(c)
}

// read waits for the end of a client, which sends nothing.
func (s *Server) read(c *served) {
	_ = c.conn.Wait()
	s.remove(c)
}

// remove forgets a client, and tells the others.
func (s *Server) remove(c *served) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.drop()
	if s.clients[c.id] != c {
		return
	}
	delete(s.clients, c.id)
	for _, other := range s.clients {
		other.post(message{c.id, -1})
	}
	c.close()
	s.options.Log(fmt.Sprintf("client %d has gone (%d of %d)", c.id, len(s.clients), s.options.Peers))
}

// closeFile closes a file of this process' own.
func closeFile(f int) {
	if f >= 0 {
		unix.Close(f)
	}
}

// close closes a client's interrupts.
func (c *served) close() {
	for _, fd := range c.vectors {
		unix.Close(fd)
	}
	c.vectors = nil
}

// Close ends all connections. Clients keep the memory and the interrupts that they have.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	var err error
	if s.ln != nil {
		err = s.ln.Close()
	}
	for _, c := range s.clients {
		c.drop()
	}
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(err, unix.Close(s.memory))
}
