// Package shmem is OpenSHMEM for Go. A program runs as several processing elements (PEs), processes
// as a rule, which read and write each other's memory without the other one's help.
//
// It is not a backend that makes a bridge of shared memory. That is ntb/ntbshm.
//
//	w, err := shmem.Open(ctx)                     // which PE of how many: the launcher says
//	s, err := shmem.Alloc[int64](ctx, w, 1000)    // on every PE, at the same offset
//	s.Put([]int64{1, 2}, right)                   // to PE right
//	err = w.Team().Barrier(ctx)                   // all have come, all puts are there
//	fmt.Println(s.Local()[0])                     // what the left one has put
//	err = w.Close(ctx)                            // collective
//
// shmemrun -n 4 ./prog starts four PEs on this machine; mpiexec of MPICH, srun and
// oshrun do as well.
//
// # How operations travel
//
// A PE whose heap is mapped here is reached by loads and stores. Those are the PEs of the same
// host, and of neighbouring hosts whose links are shared memory. A put to such a PE is a copy, of
// which the PE is not told. Any other PE, and with the option Strict every PE, is reached by
// requests over a connection of package sdp. So requests pass any number of hops, have flow
// control, DMA and failover, and arrive once and in order. A server goroutine of the target carries
// them out, without the application's help. Option puts of the fabric lets puts over a bridge be stores to a part of the
// heap. [World.Mapped] reports which way is used. The results
// are the same.
//
// # What may be read, and when
//
// What other PEs put into this PE's heap appears in [Sym.Local] at any time, in any order. Before a
// program reads it, it waits: in a barrier, or for a word, by WaitUntil, Test or a signal. That
// word must have been stored after the data, with a Fence between, as PutSignal does. The Go memory
// model knows nothing of other processes. For PEs of one process (a fabric of kind mem) the same
// waits order the accesses, and the race detector agrees.
//
// # Errors
//
// Mistakes of the caller panic, as with slices: a PE out of range, an index outside of its object,
// use after Close. Failures of the fabric are errors. Put, Get and the like have no result for
// them. The first failure stays with their context, and Quiet, [Ctx.Err] and collectives return it.
// An operation that fetches from a PE that is gone returns 0 and records the failure; TryG returns
// the error instead. A PE may end without Close, by a crash or otherwise, or with a Close that
// fails, or a connection to it may break. Then every wait and collective of all other PEs returns a
// [*DeadError], and so do operations on a PE that has closed because of it. Open fails with it, too.
//
// # Waiting
//
// A wait polls for 200 µs, or longer if it was woken without need, and then sleeps. A store of
// another PE wakes it, which costs that PE a request. If a machine has more PEs than processors
// that they may use, a wait yields its processor to others while it polls. If more goroutines poll than
// GOMAXPROCS, or that is 1, it lets other goroutines run each microsecond. A long wait costs no processor time.
//
// # Names
//
// Functions have type parameters where C has a name for each type. Contexts are the first argument;
// the default one is [World.Ctx]. Put, Get, P, G and TryG are also methods of [Sym], which use that
// one. Methods cannot take fewer types than their Sym has, so atomics and waits are functions only.
// TYPE stands for C's type names.
//
//	init, init_thread, my_pe, n_pes     Open; World.PE, World.NumPEs; all calls may come
//	                                    from any goroutine (THREAD_MULTIPLE)
//	finalize, global_exit               World.Close, World.GlobalExit
//	pe_accessible, addr_accessible      World.Accessible; a Sym is always accessible
//	ptr, team_ptr                       Sym.Ptr, of Team.TranslatePE for a team's numbers
//	info_get_version, info_get_name     MajorVersion, MinorVersion, Name
//	malloc, calloc, align, realloc      Alloc, AllocZeroed, AllocAligned, Realloc
//	malloc_with_hints, free             AllocHints, Free
//	ctx_create, ctx_destroy             NewCtx, Ctx.Close
//	team_create_ctx, ctx_get_team       Team.NewCtx, Ctx.Team
//	TEAM_WORLD, TEAM_SHARED             World.Team, World.SharedTeam
//	team_my_pe, team_n_pes              Team.MyPE, Team.NPEs
//	team_translate_pe                   Team.TranslatePE
//	team_split_strided, _2d             Team.SplitStrided, Team.Split2D
//	team_get_config, team_destroy       Team.Config, Team.Destroy
//	TYPE_put, TYPE_get, putSIZE, putmem Put, Get
//	TYPE_p, TYPE_g                      P, G, TryG
//	TYPE_iput, TYPE_iget                IPut, IGet
//	ibput, ibget                        IBPut, IBGet
//	put_nbi, get_nbi                    PutNBI, GetNBI
//	atomic_fetch, _set, _swap           AtomicFetch, AtomicSet, AtomicSwap
//	atomic_compare_swap                 AtomicCompareSwap
//	atomic_fetch_inc, _inc              AtomicFetchInc, AtomicInc
//	atomic_fetch_add, _add              AtomicFetchAdd, AtomicAdd
//	atomic_fetch_and, _and              AtomicFetchAnd, AtomicAnd
//	atomic_fetch_or, _or                AtomicFetchOr, AtomicOr
//	atomic_fetch_xor, _xor              AtomicFetchXor, AtomicXor
//	atomic_fetch_nbi, _swap_nbi         AtomicFetchNBI, AtomicSwapNBI
//	atomic_compare_swap_nbi             AtomicCompareSwapNBI
//	atomic_fetch_inc_nbi, _add_nbi      AtomicFetchIncNBI, AtomicFetchAddNBI
//	atomic_fetch_and_nbi, _or_, _xor_   AtomicFetchAndNBI, AtomicFetchOrNBI, AtomicFetchXorNBI
//	put_signal, put_signal_nbi          PutSignal, PutSignalNBI
//	signal_set, signal_add              SetSignal, AddSignal
//	signal_fetch, signal_wait_until     SignalFetch, SignalWaitUntil
//	wait_until, _all, _any, _some       WaitUntil, WaitUntilAll, WaitUntilAny, WaitUntilSome
//	wait_until_all_vector, _any_, _some_ WaitUntilAllVector, WaitUntilAnyVector, WaitUntilSomeVector
//	test, _all, _any, _some             Test, TestAll, TestAny, TestSome
//	test_all_vector, _any_, _some_      TestAllVector, TestAnyVector, TestSomeVector
//	fence, quiet, pe_quiet              Ctx.Fence, Ctx.Quiet, Ctx.QuietPEs
//	barrier_all, sync_all               World.Team's Barrier, Sync
//	team_sync                           Team.Sync
//	broadcast, collect, fcollect        Broadcast, Collect, FCollect
//	alltoall, alltoalls                 AlltoAll, AlltoAllS
//	and_reduce, or_, xor_               AndReduce, OrReduce, XorReduce
//	min_reduce, max_                    MinReduce, MaxReduce
//	sum_reduce, prod_                   SumReduce, ProdReduce
//	sum_inscan, sum_exscan              SumInscan, SumExscan
//	none: on any memory                 Bcast, AllReduce
//	set_lock, test_lock, clear_lock     Lock.Set, Lock.Test, Lock.Clear
//
// Left out is what the specification calls deprecated: active sets, start_pes, shmalloc and so on.
// There is no query_thread, since there is one level, and no query_initialized, since a World is open until
// its Close. Go programs are profiled by other means than pcontrol. The hints of sessions would change
// nothing. Go has no type for long double.
package shmem

// The version of the specification, and the vendor's name, like shmem_info_get_version and shmem_info_get_name.
const (
	MajorVersion = 1
	MinorVersion = 6
	Name         = "ntbnet"
)
