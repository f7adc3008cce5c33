// Package icelake is a model of a pair of Intel's NTBs of the fourth generation, Ice Lake, back to back, for tests.
//
// What it knows is what the kernel's driver reveals: the facts beside the constants name their file in the
// kernel's tree. What no driver says was chosen, and comments say so. That is the offset of the MSI-X
// table, registers' values after a reset, and the meaning of a limit beyond the end of a window. The model
// proves nothing about the order of stores, errors or speed of the hardware.
//
//	side 0 (USD)                                side 1 (DSD)
//	BAR 0: registers  -- doorbells, scratchpads -->
//	BAR 2: window 0   --------------------------->  memory from IM23XBASE on, to IM23XLMT - BAR 2
//	BAR 4: window 1   --------------------------->  memory from IM45XBASE on, to IM45XLMT - BAR 4
//
// The same from side 1 to side 0. All of it needs a link: both drivers have enabled theirs, and the cable is whole.
// Without it, stores and doorbells vanish and loads return ones.
package icelake
