package shmem

import (
	"time"

	"github.com/ntbnet/ntbnet/internal/job"
)

// Option changes how Open joins a job. Its zero value changes nothing.
type Option struct{ set func(*job.Options) }

// MaxPEs is the most PEs of a job.
const MaxPEs = job.MaxPEs

// PE says that this is PE pe, 0 to n-1, of n, whatever the launcher says. name is
// the same for all PEs of the job. No other job that runs in the fabric may have
// it, nor may one that begins while PEs of this job are still in Close.
func PE(pe, n int, name string) Option {
	return Option{func(o *job.Options) { o.Given, o.PE, o.N, o.Job = true, pe, n, name }}
}

// Fabric names the fabric, in the form that sdp.Open takes. Without it, SDP_FABRIC
// names it. If that is not set either, the job has a fabric of its own on this
// machine.
func Fabric(spec string) Option { return Option{func(o *job.Options) { o.Fabric = spec }} }

// HeapLimit sets how large the symmetric heap may grow, in bytes, 1 to 1 TiB. It must
// be the same for all PEs. It is rounded up to whole pages, and what the package needs
// itself comes on top. Memory is taken as it is used. HeapLimit overrides
// SHMEM_SYMMETRIC_SIZE. Without either the limit is 8 GiB, or 64 MiB for PEs that
// share a process by a fabric of kind mem, or what fits where the fabric has option heap.
func HeapLimit(bytes int) Option { return Option{func(o *job.Options) { o.Heap = bytes }} }

// Strict makes this PE use requests even where the other PE's memory could be
// mapped. That is what a bridge requires, where reads are slow and atomics do not
// pass. Each PE may choose for itself.
func Strict() Option { return Option{func(o *job.Options) { o.Strict = true }} }

// Debug makes the PEs compare what they pass to collective calls, so that PEs which
// call different ones get an error. It costs some barriers for each call.
// SHMEM_DEBUG in the environment does the same.
func Debug() Option { return Option{func(o *job.Options) { o.Debug = true }} }

// Timeout sets how long Open waits for all PEs. The default is 30 s.
func Timeout(d time.Duration) Option { return Option{func(o *job.Options) { o.Timeout = d }} }
