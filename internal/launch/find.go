package launch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// MaxPEs is the largest number of PEs in a job.
const MaxPEs = 1024

// Job is what the launcher says about this process.
type Job struct {
	PE, N int    // 0 <= PE < N <= MaxPEs; immutable
	Name  string // the same for all PEs of the job and no other running job: 1 to MaxName of a-z 0-9 -; immutable
	From  string // the launcher, for messages: "SHMEM_PE", "PMI", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID" or "alone"; immutable

	slurm  bool // the launcher is Slurm's pmi2; immutable
	report int  // descriptor for Report, 0 if there is none; immutable
	pmi    *pmi // the connection to the launcher, nil if there is none; immutable
}

// source reads the variables of one launcher. If that launcher has set none, it
// returns nil and no error.
type source func(env) (*Job, error)

// env reads an environment variable. An empty one counts as not set.
type env func(name string) string

// Find finds out which PE this process is. getenv is os.Getenv, or a test's own function.
//
// The error names the variables that are incomplete, out of range or contradict each other. Under a
// launcher with PMI_FD, Find opens that connection. The Job has it until Close, which a program
// calls before it ends. A later Find in the same process returns the same PE, N and Name without a
// connection.
func Find(getenv func(string) string) (*Job, error) {
	for _, look := range []source{fromSHMEM, fromPMI, fromOpenMPI, fromSlurm} {
		if j, err := look(getenv); j != nil || err != nil {
			return j, wrap(err)
		}
	}
	if err := unusable(getenv); err != nil {
		return nil, wrap(err)
	}
	return &Job{N: 1, Name: "alone-" + random(), From: "alone"}, nil
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("launch: %w", err)
}

// unusable finds a launcher that is there, but has set no rank that Find knows.
func unusable(getenv env) error {
	for _, name := range []string{"PMIX_RANK", "PMI_PORT", "PMI_ID", "OMPI_COMM_WORLD_LOCAL_RANK", "PALS_RANKID"} {
		if v := getenv(name); v != "" {
			return fmt.Errorf("%s=%s tells of a launcher, but not which PE this is of how many: "+
				"set SHMEM_PE and SHMEM_NPES, or use shmemrun, mpiexec.hydra, oshrun or srun", name, v)
		}
	}
	return nil
}

// rankAndSize parses a PE and the number of PEs from two variables.
func rankAndSize(getenv env, peName, nName string) (pe, n int, err error) {
	peText, nText := getenv(peName), getenv(nName)
	switch {
	case peText == "":
		return 0, 0, fmt.Errorf("%s=%s, but %s is not set", nName, nText, peName)
	case nText == "":
		return 0, 0, fmt.Errorf("%s=%s, but %s is not set", peName, peText, nName)
	}
	n, err = strconv.Atoi(nText)
	if err != nil || n < 1 || n > MaxPEs {
		return 0, 0, fmt.Errorf("%s=%s: want a number of PEs from 1 to %d", nName, nText, MaxPEs)
	}
	pe, err = strconv.Atoi(peText)
	if err != nil || pe < 0 || pe >= n {
		return 0, 0, fmt.Errorf("%s=%s: want 0 to %d, since %s=%d", peName, peText, n-1, nName, n)
	}
	return pe, n, nil
}

// same checks that a further variable, if set, has the value want.
func same(getenv env, name string, want int, because string) error {
	v := getenv(name)
	if v == "" {
		return nil
	}
	if got, err := strconv.Atoi(v); err != nil || got != want {
		return fmt.Errorf("%s=%s contradicts %s=%d", name, v, because, want)
	}
	return nil
}

func anySet(getenv env, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return getenv(name) != "" })
}

var errNoJob = errors.New("nothing tells this job from another one")
