// Command shmemrun starts the PEs of an OpenSHMEM job on this machine, without an
// MPI installed:
//
//	shmemrun -n 4 ./prog
//
// Each PE finds in its environment which PE it is (see internal/launch) and over
// which fabric it reaches the others. "shmemrun --help" describes all flags.
//
// # Processes
//
// Each PE leads a process group of its own, in shmemrun's session. So a signal from
// the terminal reaches shmemrun alone, which passes it on once. What a PE has
// started, as a shell script does, gets the signals that the PE gets. A PE is never
// in the terminal's foreground, so it cannot read from it. shmemrun does, and hands
// PE 0 what it reads.
//
// On Linux the kernel kills the PEs when shmemrun is killed. More exactly, it does
// so when the thread that started them ends. So the main goroutine starts them, and
// keeps its thread.
package main
