// Command shmemrun starts the PEs of an OpenSHMEM job on this machine, without an
// MPI installed:
//
//	shmemrun -n 4 ./prog              # four PEs
//	shmemrun -n 4 -l ./prog           # each line of output with its PE before it
//	shmemrun --hosts 4 ./prog         # each PE a node of a ring of its own
//
// Each PE finds in its environment who it is (see internal/launch) and over which
// fabric it meets the others. "shmemrun --help" tells the rest.
//
// # Processes
//
// Each PE leads a process group of its own, in shmemrun's session. So a signal
// from the terminal reaches shmemrun alone, which passes it on once; and what a PE
// has started, as a shell script does, gets the signals that the PE gets. As a PE is
// never in the terminal's foreground, it cannot read from it: shmemrun does and
// hands PE 0 what it reads.
//
// On Linux the PEs are killed when shmemrun is, by the kernel. That watches the
// thread that started them, so the main goroutine does, and keeps its thread.
package main
