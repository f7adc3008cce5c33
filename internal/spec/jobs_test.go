package spec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatJobsWantToKnowOfAFabric(t *testing.T) {
	for text, want := range map[string][3]bool{ // within a process, chained, closed
		OneHost("x"):                        {false, false, false},
		"mem:x":                             {true, false, false},
		"ring:x?node=1":                     {false, true, true},
		"line:x?node=1":                     {false, true, false},
		"mesh:x?node=1":                     {false, false, false},
		"ring:x?node=1&nodes=3&backend=mem": {true, true, true},
	} {
		spec, err := Parse(text)
		require.NoError(t, err)
		chained, closed := spec.Chain()
		require.Equal(t, want, [3]bool{spec.InProcess(), chained, closed}, text)
	}
	node, ok := parseNode(NodeName(12))
	require.True(t, ok)
	require.Equal(t, 12, node)
}

// All processes of a job come to the same fabric, whatever its name is, and no two jobs share one.
func TestAJobHasAFabricOfItsOwn(t *testing.T) {
	require.Equal(t, "shm:shmem-cbf29ce484222325", OfJob("shmem", ""), "it is the same in all versions")
	require.Equal(t, "shm:shmem-af63dc4c8601ec8c", OfJob("shmem", "a"))
	of := map[string]string{}
	for _, job := range []string{"", "a", "b", "a b", "../a", "ä", "a?node=1", strings.Repeat("x", 1000), strings.Repeat("x", 1001)} {
		text := OfJob("shmem", job)
		spec, err := Parse(text)
		require.NoError(t, err, job)
		require.NoError(t, CheckName(spec.Name))
		require.False(t, spec.InProcess())
		other, taken := of[text]
		require.False(t, taken, "%q and %q", job, other)
		of[text] = job
		require.NotEqual(t, text, OfJob("other", job))
	}
}

func TestTheSpecOfAMemberIsThatOfTheSameHost(t *testing.T) {
	for text, want := range map[string]string{
		"shm:x":                 "shm:x",
		"shm:x?spin=0":          "shm:x",
		"ring:x?node=2&nodes=3": "ring:x?node=2",
		"mesh:/x?node=1&lanes=2&nodes=2&group=a&owner=b,c&window=131072": "mesh:/x?group=a&node=1&owner=b%2Cc&window=131072",
	} {
		s, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, s.Member())
		again, err := Parse(want)
		require.NoError(t, err)
		require.Equal(t, s.Place(), again.Place())
	}
}
