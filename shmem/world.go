package shmem

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/job"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/sdp"
)

// World is one PE's part in a job. Any goroutine may call its methods, and the
// functions of this package that take it or an object made from it. Collective ones
// must be called by all PEs in the same order, one at a time.
type World struct {
	// Immutable once open.
	core *job.World
	team *Team
	near *Team // see SharedTeam
	ctx  *Ctx
}

// ErrClosed reports that the World, or the context, is closed.
var ErrClosed = job.ErrClosed

// DeadError reports the end of a PE that had not called Close. It has the PE's number in
// the World, PE, and how the end was noticed, Err, which Unwrap returns.
type DeadError = job.DeadError

// OpError reports the first failure of a context's operations. It has the operation's
// name, Op, such as "put", the PE's number in the World, PE, and the cause, Err, which
// Unwrap returns.
type OpError = job.OpError

// Open joins the job that the launcher has started, and waits until all PEs have
// joined, like shmem_init and shmem_init_thread. After Close all PEs may call it again. It learns which PE this is from the first of these that is set: the option
// PE; SHMEM_PE and SHMEM_NPES; PMI_RANK and PMI_SIZE with PMI_FD (mpiexec.hydra,
// Slurm's pmi2); OMPI_COMM_WORLD_RANK and _SIZE; SLURM_PROCID and SLURM_NTASKS.
// Without any of them it is PE 0 of 1. If the variables of a launcher are
// incomplete, Open returns an error.
//
// If not all PEs have joined when ctx or the option Timeout ends, it fails with an
// error that says which are missing.
func Open(ctx context.Context, opts ...Option) (*World, error) {
	w := new(World)
	w.ctx = &Ctx{w: w}
	o := job.Options{Ctx: &w.ctx.core}
	for _, opt := range opts {
		if opt.set != nil {
			opt.set(&o)
		}
	}
	var err error
	if w.core, err = job.Open(ctx, o); err != nil {
		return nil, err
	}
	w.team = teamOf(w, w.core.Team(), nil)
	w.near = teamOf(w, w.core.SharedTeam(), nil)
	return w, nil
}

// PE returns this PE's number, 0 to NumPEs-1, like shmem_my_pe.
func (w *World) PE() int { return w.core.PE() }

// NumPEs returns how many PEs the job has, like shmem_n_pes.
func (w *World) NumPEs() int { return w.core.NumPEs() }

// Ctx returns the default context.
func (w *World) Ctx() *Ctx { return w.ctx }

// Team returns the team of all PEs.
func (w *World) Team() *Team { return w.team }

// SharedTeam returns the team of the PEs of this host whose memory is mapped to each
// other, like SHMEM_TEAM_SHARED. This PE is one of them. All of them have the same PEs
// in it.
func (w *World) SharedTeam() *Team { return w.near }

// Fabric returns this PE's membership in the fabric, by which it may listen and dial
// as well. It is nil for the only PE of a job. Close of the World closes it.
func (w *World) Fabric() *sdp.Fabric { return w.core.Fabric() }

// Mapped reports whether the heap of a PE is mapped here, so that operations on it
// are loads and stores. If not, the error says why.
func (w *World) Mapped(pe int) (bool, error) { return w.core.Mapped(pe) }

// Accessible reports whether operations on a PE can work, like shmem_pe_accessible.
// They can until it has ended. Every symmetric object can be reached on each such
// PE.
func (w *World) Accessible(pe int) bool { return w.core.Accessible(pe) }

// HeapLimit returns how large the symmetric heap may grow, in bytes. All objects together
// may take as much.
func (w *World) HeapLimit() int { return w.core.HeapLimit() }

// Err returns why the job cannot go on: a *DeadError for the first PE that ended
// without Close. It returns nil as long as all PEs run.
func (w *World) Err() error { return w.core.Err() }

// Close ends this PE's part in the job. It is collective: like shmem_finalize, it
// waits until all PEs have called it and all operations are done. Then it releases
// all memory. No Local or Ptr may be used any more, and no operation may be under
// way. If a PE has ended without Close, or ctx ends first, it does not wait any longer: it
// releases the memory and returns an error, and for the other PEs this one has ended
// without Close.
func (w *World) Close(ctx context.Context) error { return w.core.Close(ctx) }

// GlobalExit ends the job, like shmem_global_exit: the process of every PE, this one
// too, exits with status, 0 to 255. A PE that does not read its requests is left to the
// launcher. GlobalExit does not return, nor does an operation that fails because other PEs have ended
// before this one. If PEs share this process, the process goes on, and their calls fail.
func (w *World) GlobalExit(status int) { w.core.GlobalExit(status) }

// check panics after Close.
func (w *World) check() {
	if w == nil {
		onesided.BadSpace()
	}
	w.core.Check()
}
