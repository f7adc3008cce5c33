package explore

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Trace is a hash of all that happened in a run. The zero Trace keeps nothing.
type Trace uint64

// Begin returns the trace of a run in which nothing has happened.
func Begin(seed uint64) Trace { return Trace(seed + 1) }

// Note adds what happened.
func (tr *Trace) Note(what string, args ...any) {
	if *tr == 0 {
		return
	}
	h := fnv.New64a()
	fmt.Fprintln(h, *tr, what, args)
	*tr = Trace(h.Sum64())
}

// Seeds runs a world for each seed, twice: nothing may be wrong, and both runs must have the
// same trace. There are n seeds, a tenth of them with -short, or as many as NTBNET_SEEDS says.
// NTBNET_SEED names a single one. run returns what went wrong, or "".
func Seeds(t *testing.T, n uint64, run func(seed uint64) (wrong string, trace Trace)) {
	t.Helper()
	first, end := Range(t, n)
	all := Begin(first)
	for seed := first; seed < end; seed++ {
		wrong, trace := run(seed)
		if wrong != "" {
			name, _, _ := strings.Cut(t.Name(), "/")
			t.Fatalf("seed %d: %s\nagain: NTBNET_SEED=%d go test -run '^%s$'", seed, wrong, seed, name)
		}
		if _, again := run(seed); again != trace {
			t.Fatalf("seed %d: two runs differ: traces %016x and %016x", seed, trace, again)
		}
		all.Note("seed", seed, trace)
	}
	t.Logf("%d seeds, trace %016x", end-first, all)
}

// Range returns the seeds that Seeds would run, from first to before end, for a test that runs them itself.
func Range(t *testing.T, n uint64) (first, end uint64) {
	t.Helper()
	if testing.Short() {
		n = max(1, n/10)
	}
	number := func(name string, otherwise uint64) uint64 {
		s := os.Getenv(name)
		if s == "" {
			return otherwise
		}
		v, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return v
	}
	if os.Getenv("NTBNET_SEED") != "" {
		first = number("NTBNET_SEED", 0)
		return first, first + 1
	}
	if end = number("NTBNET_SEEDS", n); end == 0 {
		t.Fatal("no seeds")
	}
	return 0, end
}

// Planted tests that each planted fault is found: by one of the first 1000 seeds, in the same
// way by two runs, and in a small case. run and small are what Seeds and Small are tested
// with, but with the fault, and return what went wrong, or "".
func Planted[F ~string](t *testing.T, faults []F, run func(fl F, seed uint64) (wrong string, trace Trace), small func(fl F) (wrong string)) {
	t.Helper()
	if len(faults) == 0 {
		t.Fatal("no faults are planted")
	}
	for _, fl := range faults {
		t.Run(string(fl), func(t *testing.T) {
			t.Parallel()
			seed, wrong := uint64(0), ""
			for ; wrong == ""; seed++ {
				if seed == 1000 {
					t.Fatal("not found by 1000 seeds")
				}
				wrong, _ = run(fl, seed)
			}
			if again, _ := run(fl, seed-1); again != wrong {
				t.Fatalf("seed %d: two runs find %q and %q", seed-1, wrong, again)
			}
			t.Logf("seed %d: %s", seed-1, wrong)
			found := small(fl)
			if found == "" {
				t.Fatal("the small cases do not find it")
			}
			t.Log(found)
		})
	}
}
