package unixsock

import "sync"

// Bounds of a closer. A user is the one at the other end of the socket that brought the file.
const (
	maxThreads     = 16  // closes at the same time
	maxUserThreads = 4   // of them, for a user
	maxHeld        = 512 // descriptors that are to be closed
	maxUserHeld    = 128 // of them, for a user
)

// closer closes what may take for ever to close. Each close has a thread.
type closer struct {
	mu      sync.Mutex
	users   map[int]*leftover // those who have any
	held    int
	threads int
}

// leftover is what is to be closed for a user.
type leftover struct {
	waiting []func() // each closes one descriptor
	held    int      // descriptors, also while they are being closed
	threads int
	stowed  []*stow
	stowing int // calls of stow whose caller has the descriptor still; until then what is stowed stays
}

// files is the closer of this process.
var files = closer{users: map[int]*leftover{}}

// full reports whether so much is to be closed for a user that nothing more is to be taken. A user for whom
// nothing is to be closed is not refused for what others have left.
func (c *closer) full(uid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.users[uid]
	return u != nil && (u.held >= maxUserHeld || c.held >= maxHeld)
}

// add has a descriptor closed by a call of f.
func (c *closer) add(uid int, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.of(uid)
	u.waiting = append(u.waiting, f)
	c.count(u, 1)
	c.start()
}

// of returns what is to be closed for a user. The caller holds mu.
func (c *closer) of(uid int) *leftover {
	u := c.users[uid]
	if u == nil {
		u = new(leftover)
		c.users[uid] = u
	}
	return u
}

// count adds n to the descriptors that are held. The caller holds mu.
func (c *closer) count(u *leftover, n int) {
	u.held += n
	c.held += n
}

// start begins as many closes as there may be. The caller holds mu.
func (c *closer) start() {
	for uid, u := range c.users {
		for u.threads < maxUserThreads && c.threads < maxThreads && u.fill() {
			f := u.waiting[0]
			u.waiting = u.waiting[1:]
			u.threads++
			c.threads++
			go c.run(u, f)
		}
		if u.held == 0 {
			delete(c.users, uid)
		}
	}
}

// hasStowed follows stow, when the caller has closed the descriptor.
func (c *closer) hasStowed(uid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users[uid].stowing--
	c.start()
}

// fill reports whether something waits to be closed. What is stowed comes last.
func (u *leftover) fill() bool {
	if len(u.waiting) == 0 && len(u.stowed) > 0 && u.stowing == 0 {
		u.waiting = append(u.waiting, u.stowed[0].close)
		u.stowed = u.stowed[1:]
	}
	return len(u.waiting) > 0
}

func (c *closer) run(u *leftover, f func()) {
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	u.threads--
	c.threads--
	c.count(u, -1)
	c.start()
}
