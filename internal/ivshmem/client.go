//go:build linux

package ivshmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"golang.org/x/sys/unix"
)

// Client is a process' end of a server's memory.
type Client struct {
	// Immutable.
	conn   *unixsock.Conn
	id     int64
	memory *os.File
	size   int64
	bell   *os.File // the first of the client's own vectors

	ended chan struct{} // closed when the connection has ended

	mu    sync.Mutex
	peers map[int64]*os.File // the first vector of each other client
	left  map[int64]struct{} // clients that have gone
}

// dialError says what to do if there is no connection.
func dialError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("ivshmem: this user may not connect to the server (its --mode and --group say who may): %w", err)
	}
	return fmt.Errorf("ivshmem: no server (ntb-ivshmem-server starts one): %w", err)
}

// Dial connects to the server that listens at a path.
func Dial(ctx context.Context, path string) (*Client, error) {
	if err := unixsock.CheckPath(path); err != nil {
		return nil, fmt.Errorf("ivshmem: %s: %w", path, err)
	}
	conn, err := unixsock.DialForFiles(ctx, path)
	if err != nil {
		return nil, dialError(err)
	}
	c := &Client{conn: conn, ended: make(chan struct{}), peers: make(map[int64]*os.File), left: make(map[int64]struct{})}
	stop := context.AfterFunc(ctx, func() { c.conn.SetReadDeadline(time.Unix(1, 0)) })
	err = c.greet()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.conn.Close()
		c.release()
		return nil, fmt.Errorf("ivshmem: %s: %w", path, err)
	}
	go c.listen()
	return c, nil
}

// greet receives what a server says at first, up to the client's own interrupt.
func (c *Client) greet() error {
	m, err := c.number()
	if err != nil {
		return err
	}
	if m != protocol {
		return fmt.Errorf("a server of protocol version %d, this program has %d", m, protocol)
	}
	if c.id, err = c.number(); err != nil {
		return err
	}
	if c.id < 0 || c.id > MaxID {
		return fmt.Errorf("number %d of a client, want 0 to %d", c.id, MaxID)
	}
	memory, err := receive(c.conn)
	if err != nil {
		return fmt.Errorf("the server hung up, perhaps because it has as many clients as it serves: %w", err)
	}
	if memory.value != memoryID || memory.file < 0 {
		discard(c.conn, memory.file)
		return fmt.Errorf("message %d in place of the memory", memory.value)
	}
	if err := inMemory(memory.file); err != nil {
		discard(c.conn, memory.file)
		return err
	}
	c.memory = os.NewFile(uintptr(memory.file), "ivshmem")
	var st unix.Stat_t
	if err := unix.Fstat(memory.file, &st); err != nil {
		return fmt.Errorf("stat memory: %w", err)
	}
	if c.size = st.Size; c.size <= 0 || c.size&(c.size-1) != 0 {
		return fmt.Errorf("memory of %d bytes, want a power of two", c.size)
	}
	for c.bell == nil {
		if err := c.next(); err != nil {
			return err
		}
	}
	return nil
}

// number receives a message without a descriptor.
func (c *Client) number() (int64, error) {
	m, err := receive(c.conn)
	if err != nil {
		return 0, fmt.Errorf("the server hung up, perhaps because it has as many clients as it serves: %w", err)
	}
	if m.file >= 0 {
		discard(c.conn, m.file)
		return 0, fmt.Errorf("message %d with a descriptor", m.value)
	}
	return m.value, nil
}

// next receives one of the messages that follow.
func (c *Client) next() error {
	m, err := receive(c.conn)
	switch {
	case err != nil:
		return err
	case m.value < 0 || m.value > MaxID:
		discard(c.conn, m.file)
		return fmt.Errorf("number %d of a client, want 0 to %d", m.value, MaxID)
	case m.file >= 0:
		return c.vector(m)
	}
	c.leave(m.value)
	return nil
}

// leave notes that another client has gone, and has Wait return.
func (c *Client) leave(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left[id] = struct{}{}
	if f := c.peers[id]; f != nil {
		f.Close()
		delete(c.peers, id)
	}
	if c.bell != nil {
		interrupt(c.bell)
	}
}

// vector keeps the first vector of each client.
func (c *Client) vector(m message) error {
	// Other files might not answer, nor close. Without /proc a server is believed.
	if kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", m.file)); err == nil && kind != "anon_inode:[eventfd]" {
		discard(c.conn, m.file)
		return fmt.Errorf("interrupt of client %d is no eventfd", m.value)
	}
	if err := unix.SetNonblock(m.file, true); err != nil {
		discard(c.conn, m.file)
		return fmt.Errorf("interrupt of client %d: %w", m.value, err)
	}
	f := os.NewFile(uintptr(m.file), "eventfd")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.value == c.id && c.bell == nil:
		c.bell = f
	case m.value != c.id && c.peers[m.value] == nil:
		c.peers[m.value] = f
		delete(c.left, m.value) // some servers give a number again
	default:
		f.Close() // a further vector
	}
	return nil
}

// listen follows the other clients' comings and goings.
func (c *Client) listen() {
	for c.next() == nil {
	}
	close(c.ended)
}

// ID returns the client's number, by which others interrupt it.
func (c *Client) ID() int64 { return c.id }

// Memory returns the memory and its size in bytes, a power of two. The file stays the client's.
func (c *Client) Memory() (*os.File, int64) { return c.memory, c.size }

// Gone returns a channel that is closed when the server has gone. Clients that were there go on with what
// they have; others are not seen any more.
func (c *Client) Gone() <-chan struct{} { return c.ended }

// Interrupt interrupts another client, if it is there.
func (c *Client) Interrupt(id int64) {
	c.mu.Lock()
	f := c.peers[id]
	c.mu.Unlock()
	if f != nil {
		interrupt(f)
	}
}

// interrupt adds one to an eventfd. It fails only if nobody has taken 2^64 interrupts, or the file was
// closed meanwhile.
func interrupt(f *os.File) { _, _ = f.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// Left reports whether the server has said that a client has gone.
func (c *Client) Left(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, left := c.left[id]
	return left
}

// Present reports whether another client is there, or was when the server went.
func (c *Client) Present(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peers[id] != nil
}

// Wait waits for an interrupt, or until another client has gone. Several may come as one. It fails after
// Close.
func (c *Client) Wait() error {
	var count [8]byte
	_, err := c.bell.Read(count[:])
	return err
}

// Close ends the connection. Wait returns.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.ended
	c.release()
	return err
}

// release closes the files. The connection is closed.
func (c *Client) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, f := range c.peers {
		f.Close()
		delete(c.peers, id)
	}
	for _, f := range []*os.File{c.bell, c.memory} {
		if f != nil {
			f.Close()
		}
	}
}

// inMemory returns an error unless a file is one of a file system in memory. Others might not answer, nor close.
func inMemory(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil {
		return fmt.Errorf("the memory is no file of a file system in memory: %w", err)
	}
	return nil
}
