package hostdir

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/lock"
)

var errDirClosed = fmt.Errorf("fabric: directory: %w", os.ErrClosed)

// byteLocks are the locks on bytes of a claim file, as one process has them and finds those
// of all.
type byteLocks interface {
	// lock locks a byte. It returns false if another process has it. A byte may be locked
	// twice.
	lock(at int64) (bool, error)
	// unlock unlocks what this process has of n bytes from start, in one piece.
	unlock(start, n int64) error
	// find finds a byte that is locked, by this process or another, of n > 0 bytes from
	// start. If there are several, it need not be the first.
	find(start, n int64) (at int64, ok bool, err error)
}

// Claims are what one process has claimed on its host, in a [Dir] or in [Memory]. Several goroutines may use them. The
// methods wait for nothing else. Between two calls of locks, other processes may do anything.
type Claims struct {
	mu      lock.Mutex[lock.Dir] // guards the following; callers of methods that are not exported hold it
	locks   byteLocks
	process int              // own process number, 0 before claimProcess
	ports   map[int]struct{} // own ports, needed because a byte may be locked twice
	sockets map[int64]int    // by byte, how often this process has published a socket
	closed  bool
}

func newClaims(l byteLocks) *Claims {
	return &Claims{locks: l, ports: make(map[int]struct{}), sockets: make(map[int64]int)}
}

// Close drops all claims.
func (c *Claims) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drop()
}

// drop is Close.
func (c *Claims) drop() error {
	err := c.locks.unlock(0, 0)
	c.locks, c.process, c.closed = noLocks{}, 0, true
	clear(c.ports)
	clear(c.sockets)
	return err
}

// noLocks are the locks of claims that are closed.
type noLocks struct{}

func (noLocks) lock(int64) (bool, error)               { return false, errDirClosed }
func (noLocks) unlock(int64, int64) error              { return nil }
func (noLocks) find(int64, int64) (int64, bool, error) { return 0, false, errDirClosed }

// claimProcess claims the lowest free process number.
func (c *Claims) claimProcess() (int, error) {
	if c.process != 0 {
		return c.process, nil
	}
	for n := 1; n <= maxProcess; n++ {
		ok, err := c.locks.lock(int64(n))
		if err != nil {
			return 0, fmt.Errorf("fabric: claim process %d: %w", n, err)
		}
		if ok {
			c.process = n
			return n, nil
		}
	}
	return 0, fmt.Errorf("fabric: all %d process numbers are taken: %w", maxProcess, syscall.EAGAIN)
}

// freePorts is how many ports there are from FirstFree on.
const freePorts = MaxPort - FirstFree + 1

// claimFreePort claims a port from FirstFree on. Its search begins at number begin of
// freePorts.
func (c *Claims) claimFreePort(begin int) (int, error) {
	for i := range freePorts {
		port := FirstFree + (begin+i)%freePorts
		ok, err := c.takePort(port)
		if err != nil {
			return 0, fmt.Errorf("fabric: claim port %d: %w", port, err)
		}
		if ok {
			return port, nil
		}
	}
	return 0, fmt.Errorf("fabric: all ports from %d to %d are taken: %w", FirstFree, MaxPort, syscall.EADDRINUSE)
}

// takePort claims the port, and then publishes the holder. Between the two, other
// processes find a port without a holder, at which nothing listens yet. It returns false if
// the port is taken, by another process or this one.
func (c *Claims) takePort(port int) (bool, error) {
	if _, own := c.ports[port]; own {
		return false, nil
	}
	if ok, err := c.locks.lock(portByte(port)); !ok {
		return false, err
	}
	if err := c.publishHolder(port); err != nil {
		c.dropPort(port)
		return false, err
	}
	c.ports[port] = struct{}{}
	return true, nil
}

// publishHolder publishes that this process holds a port that it has claimed.
func (c *Claims) publishHolder(port int) error {
	ok, err := c.locks.lock(holderByte(port, c.process))
	if err == nil && !ok {
		err = fmt.Errorf("another program has locked the claim file: %w", syscall.EPERM)
	}
	return err
}

// dropPort unlocks both bytes of the port in one call, so that there are never two
// holders. Unlocking fails only for lack of kernel memory. Then the port stays
// taken until Close.
func (c *Claims) dropPort(port int) {
	_ = c.locks.unlock(portByte(port), 1+processBytes)
}

// releasePort releases a port of this process. It does nothing for other ports.
func (c *Claims) releasePort(port int) {
	if _, own := c.ports[port]; own {
		c.dropPort(port)
		delete(c.ports, port)
	}
}

// claimOwner claims the host's bridges, and a process number if this process has none.
// Between the two claims, other processes find bridges without an owner.
func (c *Claims) claimOwner() (process int, err error) {
	ok, err := c.locks.lock(portByte(ownerPort))
	if err == nil && !ok {
		err = syscall.EADDRINUSE
	}
	if err != nil {
		return 0, fmt.Errorf("fabric: claim the bridges of this host: %w", err)
	}
	if process, err = c.claimProcess(); err != nil {
		return 0, err
	}
	if err = c.publishHolder(ownerPort); err != nil {
		return 0, fmt.Errorf("fabric: claim the bridges of this host: %w", err)
	}
	return process, nil
}

// maxClaimed is how many locks of a claim file are looked for at most. Other members of the
// group can lock as many as they like.
const maxClaimed = 1 << 17

// scan returns all bytes that are locked, from first to last, in no order.
func (c *Claims) scan(first, last int64) (found []int64, err error) {
	// find finds any one lock of a range. So the ranges on both sides of it are searched then.
	for todo := [][2]int64{{first, last}}; len(todo) > 0; {
		r := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if r[0] > r[1] {
			continue
		}
		at, ok, err := c.locks.find(r[0], r[1]-r[0]+1)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if len(found) == maxClaimed {
			return nil, fmt.Errorf("fabric: more than %d claims: %w", maxClaimed, syscall.E2BIG)
		}
		found = append(found, at)
		todo = append(todo, [2]int64{r[0], at - 1}, [2]int64{at + 1, r[1]})
	}
	return found, nil
}

// ClaimPort claims a port of this host, 1 to 65535, for this process, and returns
// it. Port 0 claims a free one from 49152 on. If the port is taken, or all are, the
// error wraps EADDRINUSE. ClaimProcess must come first.
func (c *Claims) ClaimPort(port int) (int, error) {
	if port < 0 || port > MaxPort {
		return 0, fmt.Errorf("fabric: port %d: want 0 to %d: %w", port, MaxPort, syscall.EINVAL)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, errDirClosed
	case c.process == 0:
		return 0, errors.New("fabric: claim a port: no process number is claimed yet")
	case port == 0:
		// The search begins at random, so that a port that was just released is not
		// claimed by another process at once.
		return c.claimFreePort(rand.IntN(freePorts))
	}
	ok, err := c.takePort(port)
	if err == nil && !ok {
		err = syscall.EADDRINUSE
	}
	if err != nil {
		return 0, fmt.Errorf("fabric: claim port %d: %w", port, err)
	}
	return port, nil
}

// Owner returns the process that owns the host's bridges, which may be this one. ok
// is false if there is none.
func (c *Claims) Owner() (process int, ok bool, err error) { return c.holderOf(ownerPort) }

// ReleasePort releases a port that this process has claimed. It does nothing for other
// ports.
func (c *Claims) ReleasePort(port int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releasePort(port)
}

// Holder returns the process that holds a port, which may be this one. ok is false
// if there is none.
func (c *Claims) Holder(port int) (process int, ok bool, err error) {
	if port < 1 || port > MaxPort {
		return 0, false, fmt.Errorf("fabric: port %d: want 1 to %d: %w", port, MaxPort, syscall.EINVAL)
	}
	return c.holderOf(port)
}

func (c *Claims) holderOf(port int) (process int, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := holderByte(port, 1)
	at, ok, err := c.locks.find(first, maxProcess)
	if err != nil || !ok {
		return 0, false, err
	}
	return int(at-first) + 1, true, nil
}

// Processes returns all claimed process numbers, this process's included, in order.
// Each was claimed at some moment of the call.
func (c *Claims) Processes() (all []int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, err := c.scan(1, maxProcess)
	for _, at := range found {
		all = append(all, int(at))
	}
	slices.Sort(all)
	return all, err
}

// claimed reports whether the process number is claimed.
func (c *Claims) claimed(process int) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok, err := c.locks.find(int64(process), 1)
	return ok, err
}
