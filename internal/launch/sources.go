package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// fromSHMEM reads what shmemrun sets, or a user who starts PEs by hand.
func fromSHMEM(getenv env) (*Job, error) {
	if !anySet(getenv, "SHMEM_PE", "SHMEM_NPES") {
		return nil, nil
	}
	pe, n, err := rankAndSize(getenv, "SHMEM_PE", "SHMEM_NPES")
	if err != nil {
		return nil, err
	}
	return &Job{PE: pe, N: n, Name: shmemName(getenv), From: "SHMEM_PE", report: reportFD(getenv)}, nil
}

// shmemName returns SHMEM_JOB. Without it, jobs are distinguished by their fabrics
// alone. The options of the fabric are left out, since one of them is the node,
// which differs between PEs.
func shmemName(getenv env) string {
	if job := getenv("SHMEM_JOB"); job != "" {
		return given(job)
	}
	if fabric, _, _ := strings.Cut(getenv("SDP_FABRIC"), "?"); fabric != "" {
		return hashed("fabric", fabric)
	}
	return "default"
}

// fromOpenMPI reads what mpirun and oshrun set. It does not use their own protocol,
// PMIx, which is binary and differs between versions.
func fromOpenMPI(getenv env) (*Job, error) {
	const rank, size, localSize = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"
	if !anySet(getenv, rank, size) {
		return nil, nil
	}
	pe, n, err := rankAndSize(getenv, rank, size)
	if err == nil {
		err = same(getenv, "PMIX_RANK", pe, rank)
	}
	if err != nil {
		return nil, err
	}
	space := getenv("PMIX_NAMESPACE")
	if space == "" && n > 1 {
		return nil, fmt.Errorf("%s=%d, but PMIX_NAMESPACE is not set: %w", rank, pe, errNoJob)
	}
	// The name space is unique among the jobs of one mpirun, and otherwise a number
	// of 16 random bits. The directory of its server belongs to one mpirun, but
	// each machine has its own.
	parts := []string{space}
	if local := getenv(localSize); local == "" || local == strconv.Itoa(n) {
		parts = append(parts, getenv("PMIX_SERVER_TMPDIR"), getenv("PMIX_SYSTEM_TMPDIR"))
	}
	return &Job{PE: pe, N: n, Name: hashed("ompi", parts...), From: rank}, nil
}

// fromSlurm reads what srun sets. A shell of salloc and a script of sbatch have the
// number of tasks too, but are no task of a step.
func fromSlurm(getenv env) (*Job, error) {
	const rank, size, step = "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"
	tasks := getenv(size)
	if getenv(rank) == "" && (tasks == "" || tasks == "1") {
		return nil, nil
	}
	pe, n, err := rankAndSize(getenv, rank, size)
	if err == nil {
		err = same(getenv, "SLURM_STEP_NUM_TASKS", n, size)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (is this program started by srun?)", err)
	}
	job := getenv("SLURM_JOB_ID")
	if n > 1 && (job == "" || getenv(step) == "") {
		return nil, fmt.Errorf("%s=%d of %d, but SLURM_JOB_ID=%q and %s=%q (is this program started by srun?): %w",
			rank, pe, n, job, step, getenv(step), errNoJob)
	}
	return &Job{PE: pe, N: n, Name: given("slurm-" + job + "-" + getenv(step)), From: rank}, nil
}
