// Command libsdp, which cmd/libsdp/install runs, builds the library of sockets for C, and installs it below a directory:
//
//	cmd/libsdp/install DIR
//
//	DIR/include    sdp.h
//	DIR/lib        libsdp.so, pkgconfig/libsdp.pc; libsdp-run.so, which sdp-run loads into programs
//	DIR/bin        sdp-run
//	DIR/share/man  man3/sdp.3
//
// The directory can be moved. Programs find the library where it was when they were linked. It needs Go, a compiler for C, and
// Linux. GOARCH and CC make it for another architecture.
package main
