//go:build libsma && cgo && linux

// Command libsma is OpenSHMEM 1.6 for C, as a shared library: go build -buildmode=c-shared
// makes libsma.so of it. cmd/libsma/install does that, and installs it with headers and
// compilers. The build tag libsma keeps this command, which needs cgo, out of other builds.
//
//	cmd/libsma/install ~/ntbnet
//	~/ntbnet/bin/oshcc -o prog prog.c
//	shmemrun -n 4 ./prog
//
// It is the front of internal/job for C, as package shmem is for Go. In C is what costs less
// than a call into Go: puts, gets and atomic operations on mapped memory, fences, and the first
// polls of a wait. Go fills a table for that, by which C also finds an address in the heap, see
// sma.h. All else is Go: joining, allocation, collective calls, teams, locks, requests, and
// waits that are not over at once.
//
// The headers and functions.c are made by internal/libsma/generate.
//
// # Static data
//
// Global and static variables of the program are symmetric: shmem_init copies the program's
// writable segment into one object of the heap, and maps the heap's memory in its place. So
// a variable has an offset, as everything else in the heap. That of shared libraries stays
// private. The object is in no bridge's window (option puts of the fabric), so puts to a variable
// are requests there.
//
// # Ends
//
// A mistake, such as an address that is not symmetric, is one line that names PE and call,
// and ends the job with status 1. So does a PE that ends before shmem_finalize. A program
// that exits with another status than 0 before that ends the job with this status.
package main

//go:generate go run ../../internal/libsma/generate .

func main() {}
