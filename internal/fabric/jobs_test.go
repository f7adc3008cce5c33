package fabric

import (
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
		spec, err := ParseSpec(text)
		require.NoError(t, err)
		chained, closed := spec.Chain()
		require.Equal(t, want, [3]bool{spec.InProcess(), chained, closed}, text)
	}
	node, ok := parseNode(NodeName(12))
	require.True(t, ok)
	require.Equal(t, 12, node)
}
