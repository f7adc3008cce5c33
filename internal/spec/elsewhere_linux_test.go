package spec

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/hostdir"
)

// What a look has found that did not come to its end is kept by the one that goes on, up to a number. Another round begins without it.
func TestLooksElsewhereKeepWhatTheyFound(t *testing.T) {
	before := lastPlaces.Load()
	defer lastPlaces.Store(before)
	var planted []hostdir.Use
	for range hostdir.MostUses + 1 {
		planted = append(planted, hostdir.Use{Path: "/planted", Text: "planted"})
	}
	s, err := Parse("shm:looks")
	require.NoError(t, err)
	for rest, want := range map[int]int{1: hostdir.MostUses, 0: 0} { // no process is below 1
		lastPlaces.Store(&places{uses: planted, rest: rest})
		require.Equal(t, want, strings.Count(s.Elsewhere(time.Minute), "planted"), rest)
	}
}
