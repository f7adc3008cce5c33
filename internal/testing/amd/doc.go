// Package amd is a model of AMD's NTB, for tests: one chip, in the machine of its primary side, with a cable to the
// machine of its secondary side.
//
// What it knows is what the kernel's driver reveals, drivers/ntb/hw/amd of Linux 6.12. What that does not say was chosen, and
// comments say so. The model proves nothing about the order of stores, errors or speed of the hardware.
//
//	BAR 0, at 0x000: scratchpads, which both sides have in common
//	       at 0x400: a block of this side's: doorbells, events, and where this side's stores go
//	       at 0x800: the block of the other side
//	BAR 2, BAR 4:    windows into the other side's memory
//
// A side says by the other side's block where stores to its memory go (amd_ntb_mw_set_trans). The primary side reaches
// both blocks whatever the cable. The secondary reads ones when that is cut, as a function whose link has gone does, and is
// told by no interrupt.
package amd
