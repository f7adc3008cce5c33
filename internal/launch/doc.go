// Package launch tells a process which PE of a parallel job it is, from what the
// launcher that started it says.
//
// Launchers speak by environment variables, and differ. [Find] knows, in this
// order:
//
//	shmemrun, by hand     SHMEM_PE SHMEM_NPES SHMEM_JOB
//	mpiexec.hydra,        PMI_RANK PMI_SIZE, and PMI_FD: a socket on which the
//	srun --mpi=pmi2       launcher answers (PMI-1: a job's name, keys and values,
//	                      a barrier)
//	mpirun, oshrun        OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_NAMESPACE
//	srun                  SLURM_PROCID SLURM_NTASKS SLURM_JOB_ID SLURM_STEP_ID
//	none                  PE 0 of 1
//
// A launcher that is seen but says nothing usable is an error: a job whose every
// process takes itself for PE 0 of 1 would compute the wrong thing and end well.
//
// It does not join the PEs: package shmem does, by the job's name, which is the
// same for all PEs and no other's. It starts no process: cmd/shmemrun does.
package launch
