package link

import "github.com/ntbnet/ntbnet/internal/lock"

// Cause is why a link went down. The zero value is that of a link that is up.
type Cause struct {
	mu  lock.Mutex[lock.LinkErr]
	err error // guarded by mu
}

// Set sets the reason. Only the first one counts.
func (c *Cause) Set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// Get returns the reason, or nil.
func (c *Cause) Get() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
