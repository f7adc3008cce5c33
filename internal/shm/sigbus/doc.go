// Package sigbus keeps a process alive whose mapped memory goes away. Memory of a file goes when the file
// is made smaller, that of a PCI function when the function is switched off. An access then raises SIGBUS,
// which ends a Go program.
//
// In memory that is guarded such an access finds zeros, and all of it is zero pages of the process' own
// from then on. [Memory.Lost] then reports it.
package sigbus
