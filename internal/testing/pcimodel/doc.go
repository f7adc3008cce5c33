// Package pcimodel has what models of PCI functions share, for tests: the interfaces of function and machine,
// config space, the MSI-X table, and counters.
//
// A model implements [Function] for each side of a bridge. A [Slot] holds a function in a machine: it answers
// accesses to config space and to the MSI-X table itself, and hands the others to the function. Who emulates
// the machine implements [Bus] and calls the slot's methods; internal/testing/qemupci does so for QEMU.
//
//	model                         this package           emulator
//	Function  <-- Read, Write --  Slot  <-- accesses --  QEMU and its guest
//	          --  Raise       ->        --  Message  ->
//	          --  Memory      ->        --  Memory   ->
//
// A model of a bridge has one lock for both sides. Its functions call their machines under it, so no method of
// [Machine] waits for the guest or calls a function.
package pcimodel
