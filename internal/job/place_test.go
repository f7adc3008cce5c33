package job

import (
	"context"
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestACrowdIsOfPEsThatShareProcessors(t *testing.T) {
	at := func(machine string, cpus ...uint64) machinePart { return machinePart{machine, cpus} }
	for name, tt := range map[string]struct {
		places []machinePart
		want   []bool
		two    []bool // with two processors each, if not want
	}{
		"alone":                    {[]machinePart{at("a", 1)}, []bool{false}, []bool{true}},
		"alone, enough":            {[]machinePart{at("a", 3)}, []bool{false}, nil},
		"each bound to its own":    {[]machinePart{at("a", 1), at("a", 2), at("a", 12)}, []bool{false, false, false}, []bool{true, true, false}},
		"two bound to one":         {[]machinePart{at("a", 1), at("a", 1), at("a", 4)}, []bool{true, true, false}, []bool{true, true, true}},
		"free, enough":             {[]machinePart{at("a", 3), at("a", 3)}, []bool{false, false}, []bool{true, true}},
		"free, plenty":             {[]machinePart{at("a", 15), at("a", 15)}, []bool{false, false}, nil},
		"free, too many":           {[]machinePart{at("a", 3), at("a", 3), at("a", 3)}, []bool{true, true, true}, nil},
		"on two machines":          {[]machinePart{at("a", 3), at("a", 3), at("b", 15), at("b", 15)}, []bool{false, false, false, false}, []bool{true, true, false, false}},
		"one machine has too many": {[]machinePart{at("a", 3), at("b", 1), at("b", 1)}, []bool{false, true, true}, nil},
		"in a chain":               {[]machinePart{at("a", 1), at("a", 3), at("a", 2)}, []bool{true, true, true}, nil},
		"beyond 64 processors":     {[]machinePart{at("a", 0, 1), at("a", 1), at("a", 0, 6)}, []bool{false, false, false}, []bool{true, true, false}},
		"beyond 64, bound to one":  {[]machinePart{at("a", 0, 1), at("a", 3), at("a", 0, 1)}, []bool{true, false, true}, nil},
		"one that says nothing":    {[]machinePart{at("a", 1), at("a")}, []bool{false, true}, []bool{true, true}},
	} {
		if tt.two == nil {
			tt.two = tt.want
		}
		for pe, want := range tt.want {
			require.Equal(t, want, crowded(tt.places, pe, 1), "%s, PE %d", name, pe)
			require.Equal(t, tt.two[pe], crowded(tt.places, pe, 2), "%s, PE %d, two each", name, pe)
		}
	}
}

func TestPEsTellEachOtherWhereTheyAre(t *testing.T) {
	run(t, 3, "mem:places", Options{}, func(w *World) {
		require.NotZero(t, cpuSet(w.parts[w.pe].CPUs).count())
		for _, p := range w.parts {
			require.Equal(t, w.parts[w.pe], p)
		}
		require.Equal(t, cpuSet(w.parts[w.pe].CPUs).count() < 3, crowded(w.parts, w.pe, 1))
	})
}

// sleeps reports whether waits sleep at once.
func sleeps(w *World) bool {
	return reflect.ValueOf(w.space).Elem().FieldByName("served").FieldByName("v").Uint() != 0
}

// PEs are apart if none has mapped another one's heap, in either direction.
func TestPEsAreApart(t *testing.T) {
	for name, strict := range map[string][3]bool{
		"mapped":     {},
		"strict":     {true, true, true},
		"one strict": {true, false, false},
	} {
		for _, pes := range []int{2, 3} {
			var all sync.WaitGroup
			for pe := range pes {
				all.Go(func() {
					w, err := Open(context.Background(), Options{Given: true, PE: pe, N: pes, Job: t.Name(), Fabric: "mem:apart", Heap: 1 << 20, Strict: strict[pe]})
					if !assert.NoError(t, err) {
						return
					}
					assert.Equal(t, name == "mapped", w.team.engine.OneHost, "%s, PE %d of %d", name, pe, pes)
					assert.Equal(t, name == "strict", w.apart(), "%s, PE %d of %d", name, pe, pes)
					assert.Equal(t, name == "strict" && crowded(w.parts, pe, 2), sleeps(w), "%s, PE %d of %d", name, pe, pes)
					w.parts = []machinePart{{"other", []uint64{15}}, {"other", []uint64{15}}, {"other", []uint64{15}}}[:pes]
					assert.Equal(t, name == "strict" && pes == 3, w.served(), "%s, PE %d of %d on 4 processors", name, pe, pes)
					assert.NoError(t, w.Close(context.Background()))
				})
			}
			all.Wait()
		}
	}
}
