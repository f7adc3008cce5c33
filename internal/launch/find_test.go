package launch

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// variables returns an environment from its form "NAME=VALUE NAME=VALUE".
func variables(s string) env {
	vars := map[string]string{}
	for f := range strings.FieldsSeq(s) {
		name, value, _ := strings.Cut(f, "=")
		vars[name] = value
	}
	return func(name string) string { return vars[name] }
}

func TestFindReadsEachLauncher(t *testing.T) {
	for _, c := range []struct {
		vars string
		want Job // Name is the beginning of the name
	}{
		{"", Job{PE: 0, N: 1, Name: "alone-", From: "alone"}},
		{"SHMEM_PE=2 SHMEM_NPES=4 SHMEM_JOB=run-1", Job{PE: 2, N: 4, Name: "run-1", From: "SHMEM_PE"}},
		{"SHMEM_PE=2 SHMEM_NPES=4", Job{PE: 2, N: 4, Name: "default", From: "SHMEM_PE"}},
		{"SHMEM_PE=0 SHMEM_NPES=4 SDP_FABRIC=ring:lab?node=1&nodes=4", Job{PE: 0, N: 4, Name: "fabric-", From: "SHMEM_PE"}},
		{"SHMEM_PE=1023 SHMEM_NPES=1024 PMI_RANK=1 SLURM_PROCID=7", Job{PE: 1023, N: 1024, Name: "default", From: "SHMEM_PE"}},
		{"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=77", Job{PE: 1, N: 2, Name: "ompi-", From: "OMPI_COMM_WORLD_RANK"}},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", Job{PE: 0, N: 1, Name: "ompi-", From: "OMPI_COMM_WORLD_RANK"}},
		{"SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=8 PMIX_RANK=3", Job{PE: 3, N: 8, Name: "slurm-12-0", From: "SLURM_PROCID"}},
		{"SLURM_NTASKS=1 SLURM_JOB_ID=12", Job{PE: 0, N: 1, Name: "alone-", From: "alone"}},
	} {
		j, err := Find(variables(c.vars))
		require.NoError(t, err, c.vars)
		assert.True(t, strings.HasPrefix(j.Name, c.want.Name), "%s: name %s", c.vars, j.Name)
		assert.Regexp(t, regexp.MustCompile(`^[a-z0-9-]{1,24}$`), j.Name)
		c.want.Name = j.Name
		assert.Equal(t, c.want, *j, c.vars)
		assert.NoError(t, j.Close())
	}
}

func TestFindNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ vars, want string }{
		{"SHMEM_PE=1", "SHMEM_NPES is not set"},
		{"SHMEM_NPES=2", "SHMEM_PE is not set"},
		{"SHMEM_PE=2 SHMEM_NPES=2", "SHMEM_PE=2: want 0 to 1, since SHMEM_NPES=2"},
		{"SHMEM_PE=-1 SHMEM_NPES=2", "SHMEM_PE=-1"},
		{"SHMEM_PE=one SHMEM_NPES=2", "SHMEM_PE=one"},
		{"SHMEM_PE=0 SHMEM_NPES=0", "SHMEM_NPES=0: want"},
		{"SHMEM_PE=0 SHMEM_NPES=1025", "SHMEM_NPES=1025: want"},
		{"SHMEM_PE=0 SHMEM_NPES=99999999999999999999", "SHMEM_NPES=9999"},
		{"PMI_FD=6", "PMI_RANK is not set"},
		{"PMI_RANK=0 PMI_SIZE=2", "PMI_FD is not set"},
		{"PMI_FD=6 PMI_RANK=0", "PMI_SIZE is not set"},
		{"PMI_FD=six PMI_RANK=0 PMI_SIZE=2", "PMI_FD=six"},
		{"PMI_FD=2 PMI_RANK=0 PMI_SIZE=2", "PMI_FD=2"},
		{"PMI_FD=1048575 PMI_RANK=0 PMI_SIZE=2", "PMI_FD=1048575"},
		{"PMI_PORT=host:7 PMI_ID=0", "PMI_PORT=host:7 tells of a launcher"},
		{"PMIX_RANK=0", "PMIX_RANK=0 tells of a launcher"},
		{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE is not set"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=7", "PMIX_RANK=1 contradicts OMPI_COMM_WORLD_RANK=0"},
		{"SLURM_NTASKS=4", "SLURM_PROCID is not set"},
		{"SLURM_PROCID=0 SLURM_NTASKS=4", `SLURM_JOB_ID=""`},
		{"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=3", `SLURM_STEP_ID=""`},
		{"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=3 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_TASKS=2 contradicts SLURM_NTASKS=4"},
	} {
		j, err := Find(variables(c.vars))
		assert.Nil(t, j, c.vars)
		assert.ErrorContains(t, err, c.want, c.vars)
	}
}

func TestNamesTellJobsApart(t *testing.T) {
	const ompi = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE="
	const step = "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=4294967295 SLURM_STEP_ID="
	names := map[string]string{}
	for _, vars := range []string{
		"",
		ompi + "1 PMIX_SERVER_TMPDIR=/tmp/a",
		ompi + "1 PMIX_SERVER_TMPDIR=/tmp/b",
		ompi + "2 PMIX_SERVER_TMPDIR=/tmp/a",
		step + "4294967295",
		step + "4294967294",
		"SHMEM_PE=0 SHMEM_NPES=2 SHMEM_JOB=Job",
		"SHMEM_PE=0 SHMEM_NPES=2 SHMEM_JOB=job",
		"SHMEM_PE=0 SHMEM_NPES=2 SHMEM_JOB=" + strings.Repeat("x", 25),
		"SHMEM_PE=0 SHMEM_NPES=2 SHMEM_JOB=" + strings.Repeat("x", 26),
		"SHMEM_PE=0 SHMEM_NPES=2 SDP_FABRIC=shm:a",
		"SHMEM_PE=0 SHMEM_NPES=2 SDP_FABRIC=shm:b",
	} {
		j, err := Find(variables(vars))
		require.NoError(t, err)
		assert.Empty(t, names[j.Name], "%q has the name of %q", vars, names[j.Name])
		names[j.Name] = vars
	}
}

func TestPEsOfAJobHaveOneName(t *testing.T) {
	for _, c := range [][2]string{
		{"SHMEM_PE=0 SHMEM_NPES=2 SDP_FABRIC=ring:a?node=1&nodes=2", "SHMEM_PE=1 SHMEM_NPES=2 SDP_FABRIC=ring:a?node=2&nodes=2"},
		// These are on two machines, whose servers have directories of their own.
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=1 PMIX_SERVER_TMPDIR=/tmp/a",
			"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=1 PMIX_SERVER_TMPDIR=/tmp/b"},
	} {
		a, err := Find(variables(c[0]))
		require.NoError(t, err)
		b, err := Find(variables(c[1]))
		require.NoError(t, err)
		assert.Equal(t, a.Name, b.Name)
	}
}
