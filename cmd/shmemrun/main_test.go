package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBadInputIsOneLineAndStatus2(t *testing.T) {
	t.Setenv("SDP_FABRIC", "")
	for _, c := range []struct{ args, want string }{
		{"", "no program to start, as in"},
		{"-n 4", "no program to start"},
		{"-n 0 prog", "-n 0: want 1 to 1024"},
		{"-n -1 prog", "-n -1: want 1 to 1024"},
		{"-n 1025 prog", "-n 1025: want 1 to 1024"},
		{"-n four prog", ": want a "},
		{"--nonsense prog", "unknown flag: --nonsense"},
		{"--hosts 0 prog", "--hosts 0: want 2 to 16"},
		{"--hosts 1 prog", "--hosts 1: want 2 to 16"},
		{"--hosts 17 prog", "--hosts 17: want 2 to 16"},
		{"--hosts 4 -n 3 prog", "-n 3 with --hosts 4: each host needs a PE"},
		{"--hosts 3 -f testdata/hosts prog", "leave one of them out"},
		{"-f testdata/none prog", "--hostfile: open testdata/none: no such file"},
		{"-f /dev/zero prog", "--hostfile: /dev/zero: has more than 1048576 bytes"},
		{"-f testdata/hosts -n 2 prog", "--hostfile testdata/hosts: 1 hosts have PEs: want 2 to 16"},
		{"-f main_test.go -n 2 prog", `--hostfile: main_test.go:1: "package main": want NAME, or NAME:COUNT`},
		{"--hosts 2 --map-by socket prog", "--map-by socket: want slot or node"},
		{"--map-by node prog", "--map-by needs --hosts or --hostfile"},
		{"--topology line prog", "--topology needs --hosts"},
		{"--hosts 3 --topology star prog", "--topology star: want ring, line or mesh"},
		{"--timeout -1s prog", "--timeout -1s: cannot be negative"},
		{"--grace soon prog", ": want a "},
		{"-np four prog", ": want a "},
		{"--bind-to socket prog", "--bind-to socket: want core or none"},
		{"-l --output-filename out prog", "leave one of them out"},
		{"-n 1 prog :", "no program to start"},
		{"-n 1 prog : prog", "-n is missing"},
		{"prog : -n 1 prog", "-n is missing"},
		{"-n 1 prog : -n 1 --timeout 3 prog", "--timeout belongs before the first program"},
		{"-n 1000 prog : -n 100 prog", "-n 1100 in all"},
		{"--hosts 3 -n 1 prog : -n 1 prog", "-n 2 with --hosts 3"},
		{"--hosts 2 -n 1000 prog : -n 100 prog", "-n 1100 in all"},
		{"--fabric-options lanes=2 prog", "option lanes=2"},
		{"--hosts 2 --fabric-options lanes=9 prog", "option lanes=9"},
		{"-n 1 prog : -n 1 -x SDP_FABRIC=shm:lab prog", "-x SDP_FABRIC=… has no effect"},
	} {
		var out, errs bytes.Buffer
		status := run(strings.Fields(c.args), &out, &errs)
		assert.Equal(t, statusUsage, status, c.args)
		assert.Empty(t, out.String(), c.args)
		assert.Contains(t, errs.String(), c.want, c.args)
		assert.True(t, strings.HasPrefix(errs.String(), "shmemrun: "), errs.String())
		assert.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
}

func TestOptionsOfAFabricThatIsGivenAreRefused(t *testing.T) {
	t.Setenv("SDP_FABRIC", "shm:lab")
	_, err := parseOptions([]string{"--fabric-options", "spin=0", "prog"}, nil)
	assert.ErrorContains(t, err, "SDP_FABRIC is set")
	_, err = parseOptions([]string{"--hosts", "2", "--fabric-options", "spin=0", "prog"}, nil)
	assert.NoError(t, err, "the ring is the job's own")
}

func TestHelpTellsAllFlagsAndIsNoError(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Equal(t, statusOK, run([]string{"--help"}, &out, &errs))
	assert.Empty(t, errs.String())
	for _, want := range []string{"-n, --n N", "-l, --prefix", "--timeout", "--grace", "-x, --x NAME=VALUE", "--wdir", "--output-filename", "--bind-to", "--hosts", "-f, --hostfile FILE", "--map-by", "--topology", "--fabric-options", "Exit status", "SHMEM_JOB"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestVersionIsNoError(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Equal(t, statusOK, run([]string{"--version"}, &out, &errs))
	assert.Empty(t, errs.String())
	assert.Regexp(t, `^shmemrun \S+, commit .*, go\S+ \w+/\w+\n$`, out.String())
}

func TestWhatFollowsTheProgramIsTheProgrammes(t *testing.T) {
	o, err := parseOptions([]string{"-n", "3", "-l", "prog", "-n", "5", "--help"}, nil)
	require.NoError(t, err)
	assert.Equal(t, 3, o.n)
	assert.True(t, o.prefix)
	assert.Equal(t, []string{"prog", "-n", "5", "--help"}, o.programs[0].command)
}

func TestFlagsAsForMpirun(t *testing.T) {
	words := strings.Fields("-np 3 --oversubscribe -bind-to core -x A=1 -x B --timeout 30 -tag-output --wd /tmp ./prog -np 5 -x C")
	o, err := parseOptions(words, nil)
	require.NoError(t, err)
	assert.Equal(t, []program{{n: 3, env: []string{"A=1", "B"}, dir: "/tmp", command: []string{"./prog", "-np", "5", "-x", "C"}}}, o.programs)
	assert.Equal(t, bindCore, o.bind)
	assert.True(t, o.prefix)
	assert.Equal(t, 30*time.Second, o.timeout)
	o, err = parseOptions(strings.Fields("--timeout 1m --output-filename=out -n=1 a b : -wdir d -np 2 c"), nil)
	require.NoError(t, err)
	assert.Equal(t, []program{{n: 1, command: []string{"a", "b"}}, {n: 2, dir: "d", command: []string{"c"}}}, o.programs)
	assert.Equal(t, 3, o.n)
	assert.Equal(t, time.Minute, o.timeout)
	for pe, want := range []string{"a", "c", "c"} {
		assert.Equal(t, want, o.program(pe).command[0])
	}
}

func TestTheExamplesOfTheHelpParse(t *testing.T) {
	examples := 0
	for line := range strings.Lines(usageHead) {
		command, _, ok := strings.Cut(line, "#")
		if fields := strings.Fields(command); ok && fields[0] == "shmemrun" {
			examples++
			_, err := parseOptions(fields[1:], os.Stdout)
			assert.NoError(t, err, line)
		}
	}
	assert.Equal(t, 5, examples)
}

func TestPEsArePlacedOnHosts(t *testing.T) {
	for _, c := range []struct {
		flags string
		want  []int
	}{
		{"-n 4 --hosts 2", []int{0, 0, 1, 1}},
		{"-n 5 --hosts 3 -m slot", []int{0, 0, 1, 1, 2}},
		{"-n 5 --hosts 3 --distribution=block", []int{0, 0, 1, 1, 2}},
		{"-n 5 --hosts 3 --map-by node", []int{0, 1, 2, 0, 1}},
		{"-n 4 --hosts 2 -m cyclic", []int{0, 1, 0, 1}},
		{"--hosts 3", []int{0, 1, 2}},
		{"-f testdata/hosts", []int{0, 0, 1, 0, 2}},
		{"-n 3 --hostfile testdata/hosts", []int{0, 0, 1}},
		{"-n 7 -machinefile testdata/hosts", []int{0, 0, 1, 0, 2, 0, 0}},
		{"-n 6 -f testdata/hosts --map-by node", []int{0, 1, 2, 0, 0, 0}},
	} {
		o, err := parseOptions(append(strings.Fields(c.flags), "prog"), nil)
		require.NoError(t, err, c.flags)
		assert.Equal(t, c.want, o.at, c.flags)
		assert.Equal(t, len(c.want), o.n, c.flags)
	}
}
