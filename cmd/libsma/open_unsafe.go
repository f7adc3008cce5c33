//go:build libsma && cgo && linux

package main

/*
#cgo CFLAGS: -O2 -Wall -Wextra -Wno-unused-parameter
#include "sma.h"
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	_ "github.com/ntbnet/ntbnet/internal/csignals"
	"github.com/ntbnet/ntbnet/internal/job"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// envStrict makes all PEs use requests, see job.Options.
const envStrict = "SHMEM_STRICT"

// lib is the library in this process.
var lib struct {
	// Immutable while the library is open.
	w     *job.World
	space *onesided.Space
	peers []C.struct_sma_peer // the table's

	ctxs    [C.SMA_CTXS]atomic.Pointer[callCtx] // by handle
	closing atomic.Bool                         // the last shmem_finalize was called
	closed  chan struct{}                       // closed when closing is set; of smaOpen and smaClose

	mu    sync.Mutex
	teams map[C.uintptr_t]*team // by handle; guarded by mu
}

// callCtx is a context of the program.
type callCtx struct {
	core onesided.Ctx
	team C.uintptr_t
}

// forever is the context of calls that no one ends early.
var forever = context.Background()

// recheck is how often a wait looks again that sleeps. Old programs wait for what another PE
// or thread stores by a plain store, which wakes nobody.
const recheck = 10 * time.Millisecond

// smaOpen joins the job and fills the table. fixed is the size of the object of the static data.
//
//export smaOpen
func smaOpen(name C.sma_name, fixed C.size_t) {
	defer rescue(name)
	c := &callCtx{team: worldTeam}
	o := job.Options{Strict: os.Getenv(envStrict) != "", Exit: exit, Recheck: recheck, CNames: true, Static: int(fixed), Ctx: &c.core}
	if runtime.GOMAXPROCS(0) > 1 { // a thread in a call of the system's keeps what another one needs to run Go
		o.Threads = &threads
	}
	w, err := job.Open(forever, o)
	must(name, err)
	forget()
	lib.w, lib.space, lib.closed = w, w.Space(), make(chan struct{})
	lib.closing.Store(false)
	lib.teams = map[C.uintptr_t]*team{worldTeam: {t: w.Team()}, sharedTeam: {t: w.SharedTeam()}}
	lib.ctxs[1].Store(c)
	table := &C.sma
	n := w.NumPEs()
	table.peers = (*C.struct_sma_peer)(C.calloc(C.size_t(n), C.sizeof_struct_sma_peer))
	lib.peers = unsafe.Slice(table.peers, n)
	for pe, p := range lib.space.Peers() {
		if p.Fenced() {
			lib.peers[pe].fence = 1
		}
		base := p.Base()
		if base == nil {
			table.far = 1
			continue
		}
		lib.peers[pe].base = (*C.char)(unsafe.Pointer(base))
		lib.peers[pe].arm = (*C.uint32_t)(unsafe.Pointer(symheap.Word4(base, symheap.ArmAt)))
	}
	h := w.Heap()
	table.heap = (*C.char)(unsafe.Add(unsafe.Pointer(h.Base), h.Objects))
	table.at = C.size_t(h.Objects)
	table.size = C.size_t(h.Size - h.Objects)
	table.pe, table.npes = C.int(w.PE()), C.int(n)
	C.sma_world.n = C.uint32_t(n)
	go watch(w, lib.closed)
}

// forget frees what the table and contexts of the last job have.
func forget() {
	C.free(unsafe.Pointer(C.sma.peers))
	for ctx := 2; ctx < len(lib.ctxs); ctx++ {
		if lib.ctxs[ctx].Swap(nil) != nil {
			freeCtx(ctx)
		}
	}
}

// watch ends the process when the job cannot go on, since calls of C return no errors.
func watch(w *job.World, closed <-chan struct{}) {
	select {
	case <-closed:
	case <-w.Space().Failed():
		if !lib.closing.Load() && first() {
			say("job", w.Err())
			leave()
		}
	}
}

// smaClose ends this PE's part in the job.
//
//export smaClose
func smaClose(name C.sma_name) {
	defer rescue(name)
	// All is done before the table is empty, and no one comes later.
	must(name, lib.w.Team().Barrier(forever))
	lib.closing.Store(true)
	close(lib.closed)
	C.sma.size = 0
	C.sma_world.n = 0
	for i := range C.sma_ctxs {
		if c := C.sma_ctxs[i]; c != nil {
			c.n = 0
		}
	}
	must(name, lib.w.Close(forever))
}

// smaStatic allocates the object of the static data, and returns its offset and the
// descriptor of the heap with where that begins in it. It compares what PE 0 has.
//
//export smaStatic
func smaStatic(name C.sma_name, size C.size_t, layout C.uint64_t, fd *C.int, at *C.int64_t) C.size_t {
	defer rescue(name)
	mine := [2]uint64{uint64(size), uint64(layout)}
	first := mine
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&first)), unsafe.Sizeof(first))
	must(name, lib.w.Team().Bcast(forever, buf, 8, 0))
	if first != mine {
		failf(name, "the static data is not that of PE 0: all PEs must run the same program (%d bytes here, %d there)", mine[0], first[0])
	}
	if size == 0 {
		return 0
	}
	off, err := lib.w.Alloc(forever, uint64(size), os.Getpagesize())
	if err != nil {
		failf(name, "global and static variables of %d bytes: %v; SHMEM_SYMMETRIC_SIZE sets its size", size, err)
	}
	file, from := lib.w.Heap().File()
	*fd, *at = C.int(file.Fd()), C.int64_t(from)
	return C.size_t(off)
}

// smaSync waits until all PEs have called it.
//
//export smaSync
func smaSync(name C.sma_name) {
	defer rescue(name)
	must(name, lib.w.Team().Sync(forever))
}
