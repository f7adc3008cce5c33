package shmem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACrowdIsOfPEsThatShareProcessors(t *testing.T) {
	at := func(machine string, cpus ...uint64) place { return place{machine, cpus} }
	for name, tt := range map[string]struct {
		places []place
		want   []bool
	}{
		"alone":                    {[]place{at("a", 1)}, []bool{false}},
		"each bound to its own":    {[]place{at("a", 1), at("a", 2), at("a", 4)}, []bool{false, false, false}},
		"two bound to one":         {[]place{at("a", 1), at("a", 1), at("a", 4)}, []bool{true, true, false}},
		"free, enough":             {[]place{at("a", 3), at("a", 3)}, []bool{false, false}},
		"free, too many":           {[]place{at("a", 3), at("a", 3), at("a", 3)}, []bool{true, true, true}},
		"on two machines":          {[]place{at("a", 3), at("a", 3), at("b", 3), at("b", 3)}, []bool{false, false, false, false}},
		"one machine has too many": {[]place{at("a", 1), at("b", 1), at("b", 1)}, []bool{false, true, true}},
		"in a chain":               {[]place{at("a", 1), at("a", 3), at("a", 2)}, []bool{true, true, true}},
		"beyond 64 processors":     {[]place{at("a", 0, 1), at("a", 1), at("a", 0, 2)}, []bool{false, false, false}},
		"beyond 64, bound to one":  {[]place{at("a", 0, 1), at("a", 1), at("a", 0, 1)}, []bool{true, false, true}},
		"one that says nothing":    {[]place{at("a", 1), at("a")}, []bool{false, true}},
	} {
		for pe, want := range tt.want {
			require.Equal(t, want, crowded(tt.places, pe), "%s, PE %d", name, pe)
		}
	}
}

func TestPEsTellEachOtherWhereTheyAre(t *testing.T) {
	run(t, 3, "mem:places", nil, func(w *World) {
		require.NotZero(t, cpuSet(w.places[w.pe].CPUs).count())
		for _, p := range w.places {
			require.Equal(t, w.places[w.pe], p)
		}
		require.Equal(t, cpuSet(w.places[w.pe].CPUs).count() < 3, crowded(w.places, w.pe))
	})
}
