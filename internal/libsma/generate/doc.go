// Command generate writes what of cmd/libsma follows from a table: the headers shmem.h, pshmem.h and
// shmemx.h, and the bodies of all functions, in functions.c. It is run by go generate -tags libsma in
// cmd/libsma, and has one argument, that directory.
//
// The table is written by hand. The list of the specification's prototypes, which is in
// its testdata, is not its source: tests compare the two.
package main
