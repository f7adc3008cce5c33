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
		{"--hosts 3 -n 4 prog", "-n 4 with --hosts 3"},
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
	for _, want := range []string{"-n, --n N", "-l, --prefix", "--timeout", "--grace", "-x, --x NAME=VALUE", "--wdir", "--output-filename", "--bind-to", "--hosts", "--topology", "--fabric-options", "Exit status", "SHMEM_JOB"} {
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
	assert.Equal(t, 4, examples)
}
