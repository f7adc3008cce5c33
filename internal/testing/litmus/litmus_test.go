//go:build linux && (amd64 || arm64) && !race

package litmus

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/membarrier"
)

// longVariable is the variable for the length of each half of each test.
const longVariable = "NTBNET_LITMUS"

// exitsVariable is the variable that makes threads end meanwhile.
const exitsVariable = "NTBNET_LITMUS_EXITS"

// leastRounds are played even if the machine is slow.
const leastRounds = 100

// halves returns the limits of the half with all ordering, and of the half without
// some. The second ends when it has shown what it is meant to show.
func halves(t *testing.T) (with, without limits) {
	d := 120 * time.Millisecond
	if testing.Short() {
		d = 25 * time.Millisecond
	}
	with = limits{least: leastRounds, most: 1 << 40, d: d}
	without = limits{least: 1, most: 1 << 40, d: 10 * d, enough: 1}
	if v := os.Getenv(longVariable); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("%s: %v", longVariable, err)
		}
		with.d = d
		without = with
	}
	return with, without
}

func TestNoRoundEndsWithBothSidesBlind(t *testing.T) {
	with, without := halves(t)
	arenas := map[bool]arena{false: newProcesses(t), true: newThreads(t)}
	if os.Getenv(exitsVariable) != "" {
		exits(t)
	}
	cpus, err := processors()
	if err != nil {
		t.Fatal(err)
	}
	for i := range litmuses {
		l := &litmuses[i]
		where := arenas[l.threads]
		ok := t.Run(l.pair+", "+l.by, func(t *testing.T) {
			if l.membarrier && !membarrier.Register() {
				warn(t, "there is no membarrier")
				return
			}
			o, err := where.play(i, none, with)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d rounds", o.rounds)
			if o.blind > 0 {
				t.Errorf("both sides stored and neither saw the other's store in %d of %d rounds, first in round %d", o.blind, o.rounds, o.first)
			}
			for _, out := range l.outs {
				if len(cpus) < 2 {
					warn(t, "there is one processor: no test shows what an ordering is for")
					return
				}
				o, err := where.play(i, out, without)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("without that of side %d: neither saw the other's store in %d of %d rounds", out, o.blind, o.rounds)
				if o.blind == 0 {
					warn(t, fmt.Sprintf("%d rounds do not show what the ordering of side %d is for", o.rounds, out))
				}
			}
		})
		if !ok {
			return // the sides are perhaps at different rounds
		}
	}
}

// warn prints a line that is shown even if the test passes.
func warn(t *testing.T, what string) { fmt.Printf("WARNING: %s: %s\n", t.Name(), what) }
