package shmem

import "github.com/ntbnet/ntbnet/internal/onesided"

// Ctx is a communication context: a set of operations that are ordered and
// completed together. It records its own errors. It numbers PEs as its team does.
//
// A context may be used by several goroutines. The options of the specification,
// serialized and private, would allow an implementation to support less. They
// change nothing here.
type Ctx struct {
	core onesided.Ctx
	w    *World // immutable
	team *Team  // immutable; nil: the team of all
}

// NewCtx makes a context of all PEs, like shmem_ctx_create. It is not collective.
func NewCtx(w *World) *Ctx {
	w.check()
	c := &Ctx{w: w}
	w.core.Team().InitCtx(&c.core)
	return c
}

// Team returns the team that numbers the context's PEs, like shmem_ctx_get_team.
func (c *Ctx) Team() *Team {
	if c.team == nil {
		return c.w.team
	}
	return c.team
}

// Close completes the context's operations, as Quiet does, and ends it, like shmem_ctx_destroy.
func (c *Ctx) Close() error {
	if c == c.w.ctx {
		panic("shmem: the default context is closed with its World")
	}
	return c.core.Close()
}

// Err returns the first failure of the context's operations, an *OpError, or nil.
func (c *Ctx) Err() error { return c.core.Err() }

// Fence orders stores: what the context stored to a PE before it is seen there
// before what it stores to the same PE after it, like shmem_fence. Requests keep
// their order without it.
func (c *Ctx) Fence() { c.core.Fence() }

// Quiet waits until all the context's operations are done and can be seen by all PEs,
// like shmem_quiet. What nonblocking operations fetch is then here. If the context has
// failed, it returns the first failure at once.
func (c *Ctx) Quiet() error { return c.core.Quiet() }

// QuietPEs is Quiet for the operations on some PEs, by their numbers in the context, like shmem_pe_quiet.
func (c *Ctx) QuietPEs(pes ...int) error { return c.core.QuietPEs(pes) }
