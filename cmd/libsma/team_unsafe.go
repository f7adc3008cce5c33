//go:build libsma && cgo && linux

package main

/*
#include "sma.h"
#include <stdlib.h>
*/
import "C"

import (
	"slices"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/job"
)

// Handles that shmem.h has as constants.
const (
	noTeam C.uintptr_t = iota
	worldTeam
	sharedTeam
	firstTeam
)

// team is a team of the program.
type team struct {
	t        *job.Team
	contexts int   // as the program has asked for
	ctxs     []int // handles of its contexts; guarded by lib.mu
}

// teamOf returns the team of a handle; nil for one that is none.
func teamOf(id C.uintptr_t) *team {
	lib.mu.Lock()
	defer lib.mu.Unlock()
	return lib.teams[id]
}

// jobTeam is teamOf for calls that need one.
func jobTeam(name C.sma_name, id C.uintptr_t) *job.Team {
	C.sma_check(name) // that the library is open
	t := teamOf(id)
	if t == nil {
		failf(name, "there is no team with handle %d", id)
	}
	return t.t
}

// numberOf is jobTeam for calls that accept SHMEM_TEAM_INVALID.
func numberOf(name C.sma_name, id C.uintptr_t) *job.Team {
	if id == noTeam {
		return nil
	}
	return jobTeam(name, id)
}

//export smaTeamMyPE
func smaTeamMyPE(name C.sma_name, id C.uintptr_t) C.int {
	defer rescue(name)
	return C.int(numberOf(name, id).MyPE())
}

//export smaTeamNPEs
func smaTeamNPEs(name C.sma_name, id C.uintptr_t) C.int {
	defer rescue(name)
	return C.int(numberOf(name, id).NPEs())
}

//export smaTeamContexts
func smaTeamContexts(name C.sma_name, id C.uintptr_t) C.int {
	C.sma_check(name) // that the library is open
	if t := teamOf(id); t != nil {
		return C.int(t.contexts)
	}
	return -1
}

//export smaTeamTranslatePE
func smaTeamTranslatePE(name C.sma_name, id C.uintptr_t, pe C.int, other C.uintptr_t) C.int {
	defer rescue(name)
	return C.int(numberOf(name, id).TranslatePE(int(pe), numberOf(name, other)))
}

// add gives a team a handle. A nil team has none.
func add(t *job.Team, contexts C.int, id *C.uintptr_t) {
	if t == nil {
		return
	}
	lib.mu.Lock()
	defer lib.mu.Unlock()
	for *id = firstTeam; lib.teams[*id] != nil; *id++ {
	}
	lib.teams[*id] = &team{t: t, contexts: int(contexts)}
}

//export smaTeamSplitStrided
func smaTeamSplitStrided(name C.sma_name, parent C.uintptr_t, start, stride, size, contexts C.int, made *C.uintptr_t) C.int {
	defer rescue(name)
	t, err := jobTeam(name, parent).SplitStrided(forever, int(start), int(stride), int(size))
	if err != nil {
		return -1
	}
	add(t, contexts, made)
	return 0
}

//export smaTeamSplit2D
func smaTeamSplit2D(name C.sma_name, parent C.uintptr_t, xrange, xcontexts, ycontexts C.int, x, y *C.uintptr_t) C.int {
	defer rescue(name)
	tx, ty, err := jobTeam(name, parent).Split2D(forever, int(xrange))
	if err != nil {
		return -1
	}
	add(tx, xcontexts, x)
	add(ty, ycontexts, y)
	return 0
}

// smaTeamDestroy ends a team, and the contexts that were made of it.
//
//export smaTeamDestroy
func smaTeamDestroy(name C.sma_name, id C.uintptr_t) {
	defer rescue(name)
	if id == noTeam {
		return
	}
	t := jobTeam(name, id)
	if id < firstTeam {
		failf(name, "the teams of all PEs and of those that share memory cannot be destroyed")
	}
	lib.mu.Lock()
	ctxs := lib.teams[id].ctxs
	delete(lib.teams, id)
	lib.mu.Unlock()
	for _, ctx := range ctxs {
		destroy(name, ctx)
	}
	must(name, t.Destroy(forever))
}

// smaCtxCreate makes a context that numbers PEs as the team does, and fills c. It returns the
// handle, or 0 if there are too many.
//
//export smaCtxCreate
func smaCtxCreate(name C.sma_name, id C.uintptr_t, c *C.struct_sma_ctx) C.int {
	defer rescue(name)
	t := jobTeam(name, id)
	lib.mu.Lock()
	defer lib.mu.Unlock()
	for ctx := 2; ctx < len(lib.ctxs); ctx++ {
		if lib.ctxs[ctx].Load() != nil {
			continue
		}
		made := &callCtx{team: id}
		t.InitCtx(&made.core)
		if id != worldTeam {
			pes := t.PEs()
			c.pes = (*C.int)(C.malloc(C.size_t(len(pes)) * C.sizeof_int))
			for i, pe := range pes {
				*(*C.int)(unsafe.Add(unsafe.Pointer(c.pes), i*C.sizeof_int)) = C.int(pe)
			}
		}
		c.id, c.n = C.int(ctx), C.uint32_t(t.NPEs())
		lib.ctxs[ctx].Store(made)
		lib.teams[id].ctxs = append(lib.teams[id].ctxs, ctx)
		return C.int(ctx)
	}
	return 0
}

// smaCtxDestroy ends a context.
//
//export smaCtxDestroy
func smaCtxDestroy(name C.sma_name, ctx C.int) {
	defer rescue(name)
	destroy(name, int(ctx))
}

func destroy(name C.sma_name, ctx int) {
	c := lib.ctxs[ctx].Load()
	if c == nil {
		return // it has ended before its team
	}
	must(name, c.core.Close())
	freeCtx(ctx)
	lib.mu.Lock()
	defer lib.mu.Unlock()
	lib.ctxs[ctx].Store(nil)
	if t := lib.teams[c.team]; t != nil {
		t.ctxs = slices.DeleteFunc(t.ctxs, func(id int) bool { return id == ctx })
	}
}

// freeCtx frees what C has of a context.
func freeCtx(ctx int) {
	C.free(unsafe.Pointer(C.sma_ctxs[ctx].pes))
	C.free(unsafe.Pointer(C.sma_ctxs[ctx]))
	C.sma_ctxs[ctx] = nil
}

//export smaCtxTeam
func smaCtxTeam(ctx C.int) C.uintptr_t { return lib.ctxs[ctx].Load().team }
