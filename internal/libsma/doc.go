// Command libsma, which cmd/libsma/install runs, builds the OpenSHMEM library for C, and installs it below a directory:
//
//	cmd/libsma/install DIR
//
//	DIR/bin        the compilers oshcc and oshc++
//	DIR/include    shmem.h, pshmem.h, shmemx.h, mpp/shmem.h
//	DIR/lib        libsma.so, pkgconfig/libsma.pc, valgrind.supp
//
// DIR should be of its own: others, such as Debian's Open MPI, have an oshcc as well. It can be moved.
// Programs find the library where it was when they were linked. It needs Go, gcc, and Linux. GOARCH and CC
// make it for another architecture.
package main
