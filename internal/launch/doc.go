// Package launch finds out which PE of a parallel job a process is, from its
// launcher.
//
// Launchers set environment variables, which differ. [Find] knows, in this order:
//
//	shmemrun, by hand     SHMEM_PE SHMEM_NPES SHMEM_JOB
//	mpiexec.hydra,        PMI_RANK PMI_SIZE, and PMI_FD: a socket on which the
//	srun --mpi=pmi2       launcher answers (PMI-1), which has the job's name
//	mpirun, oshrun        OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_NAMESPACE
//	srun                  SLURM_PROCID SLURM_NTASKS SLURM_JOB_ID SLURM_STEP_ID
//	none                  PE 0 of 1
//
// A launcher that is recognized but says nothing usable is an error. Otherwise
// every process of a job might take itself for PE 0 of 1, compute the wrong result,
// and exit with status 0.
//
// It does not join the PEs. Package job does that, by the job's name, which is
// the same for all PEs and for no other job. It starts no processes. That is
// cmd/shmemrun.
package launch
