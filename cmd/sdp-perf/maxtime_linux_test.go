package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A command whose time is over before it begins does one round of everything, and
// reports that it left out the others.
func TestWithoutTimeOneRoundIsDone(t *testing.T) {
	for _, tt := range []struct{ args, cut string }{
		{"limits --quick", "1 of 2 rounds"},
		{"ring --nodes 2 --hops 1 --lanes 1 --duration 1ms", "6 of 18 rounds"}, // two rings, three shares, the chains
		{"shmem --time 1ms --items put", "1 of 5 rounds"},
	} {
		t.Run(strings.Fields(tt.args)[0], func(t *testing.T) {
			p := newProgram(t, nil, append(strings.Fields(tt.args), "--max-time", "1ms")...)
			require.Zero(t, p.run(t), p.stderr.String())
			assert.Contains(t, p.stdout.String(), "\n"+tt.cut+": the time of 0.001 s was used up\n")
		})
	}
}

// The directories of a ring are removed even if the process that started its nodes
// cannot do it.
func TestRingsOfAKilledProgramLeaveNothing(t *testing.T) {
	p := newProgram(t, nil, "ring", "--only", "rings", "--nodes", "3", "--hops", "1", "--lanes", "1", "--rounds", "1000")
	p.start(t)
	eventually(t, "the nodes run", func() bool { return len(p.fabrics(t)) == 3 })
	require.NoError(t, p.Process.Kill())
	assert.Equal(t, -1, p.wait(t))
	assert.Empty(t, p.fabrics(t))
}
