// Command ntbnet is for operators of wires between hosts. Its one command so far tests a wire, with a
// program at each end:
//
//	ntbnet selftest ntb
//
// Package internal/selftest does the work. "ntbnet --help" describes all flags.
package main
