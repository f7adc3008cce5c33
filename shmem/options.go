package shmem

import (
	"fmt"
	"os"
	"time"

	"github.com/ntbnet/ntbnet/internal/launch"
)

// Option changes how Open joins a job.
type Option func(*options)

type options struct {
	pe, n     int
	job       string
	fabric    string
	heap      int
	strict    bool
	debug     bool
	timeout   time.Duration
	inProcess bool // several PEs share this process
	ownFabric bool // no fabric was named
	launcher  *launch.Job
}

// Limits of options.
const (
	MaxPEs = launch.MaxPEs // most PEs of a job

	defaultHeap   = 8 << 30
	defaultGoHeap = 64 << 20 // for PEs within one process
	maxHeap       = 1 << 40

	defaultTimeout = 30 * time.Second
)

// PE says that this is PE pe, 0 to n-1, of n, whatever the launcher says. job is
// the same for all PEs of the job. No other job that runs in the fabric may have
// it.
func PE(pe, n int, job string) Option {
	return func(o *options) { o.pe, o.n, o.job = pe, n, job }
}

// Fabric names the fabric, in the form that sdp.Open takes. Without it, SDP_FABRIC
// names it. If that is not set either, the job has a fabric of its own on this
// machine.
func Fabric(spec string) Option { return func(o *options) { o.fabric = spec } }

// HeapLimit sets how large the symmetric heap may grow, in bytes, 1 to 1 TiB. It must
// be the same for all PEs. It is rounded up to whole pages, and what the package needs
// itself comes on top. Memory is taken as it is used. HeapLimit overrides
// SHMEM_SYMMETRIC_SIZE. Without either the limit is 8 GiB, or 64 MiB for PEs that
// share a process by a fabric of kind mem.
func HeapLimit(bytes int) Option { return func(o *options) { o.heap = bytes } }

// Strict makes this PE use requests even where the other PE's memory could be
// mapped. That is what a bridge requires, where reads are slow and atomics do not
// pass. Each PE may choose for itself.
func Strict() Option { return func(o *options) { o.strict = true } }

// Debug makes the PEs compare what they pass to collective calls, so that PEs which
// call different ones get an error. It costs some barriers for each call.
// SHMEM_DEBUG in the environment does the same.
func Debug() Option { return func(o *options) { o.debug = true } }

// Timeout sets how long Open waits for all PEs. The default is 30 s.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Environment variables of the specification.
const (
	envHeap  = "SHMEM_SYMMETRIC_SIZE"
	envDebug = "SHMEM_DEBUG"
)

func (o *options) check() error {
	switch {
	case o.n < 1 || o.n > MaxPEs:
		return fmt.Errorf("%d PEs: want 1 to %d", o.n, MaxPEs)
	case o.pe < 0 || o.pe >= o.n:
		return fmt.Errorf("PE %d of %d: want 0 to %d", o.pe, o.n, o.n-1)
	case o.heap < 1 || o.heap > maxHeap:
		return fmt.Errorf("symmetric heap of %d bytes: want 1 to %d", o.heap, maxHeap)
	case o.timeout <= 0:
		return fmt.Errorf("timeout of %v: want more than 0", o.timeout)
	}
	return nil
}

// environment sets from the environment what no option has set.
func (o *options) environment() (err error) {
	if v := os.Getenv(envHeap); v != "" && o.heap == 0 {
		if o.heap, err = parseSize(v); err != nil {
			return fmt.Errorf("%s=%s: %w", envHeap, v, err)
		}
		o.heap = max(1, o.heap)
	}
	if os.Getenv(envDebug) != "" {
		o.debug = true
	}
	return nil
}
