package sdp

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// known are seeds that fail today, and why.
var known = []struct {
	why    string
	covers func(p *bubblePlan) bool
}{
	{"a store to a peer several hops away waits, whatever the deadline", func(p *bubblePlan) bool { return p.routed() || p.has(cuts) && p.shape.topology == "ring" }},
}

// bubbleGuard is how long a bubble may run by the machine's clock. Its own clock stands
// still while a goroutine waits for a mutex or spins: then it never ends.
const bubbleGuard = 5 * time.Second

// bubble runs a plan, and returns what went wrong.
func bubble(t *testing.T, w *bubbleWorld) (failures []string) {
	ended := make(chan struct{})
	number := make(chan string, 1)
	go func() {
		defer close(ended)
		defer func() {
			if e := recover(); e != nil && !w.failed() {
				w.fail("%v\n%s", e, bubbleOf(<-number))
			}
		}()
		synctest.Test(t, func(*testing.T) {
			var head [100]byte
			_, own, _ := strings.Cut(string(head[:runtime.Stack(head[:], false)]), "synctest bubble ")
			own, _, _ = strings.Cut(own, "]")
			number <- own
			w.run()
		})
	}()
	select {
	case <-ended:
		return w.failures
	case <-time.After(bubbleGuard):
		return []string{fmt.Sprintf("its clock stands still: a goroutine spins, or one waits for a mutex whose holder waits for time to pass\n%s", bubbleOf(<-number))}
	}
}

// bubbleOf are the stacks of a bubble, by its number.
func bubbleOf(number string) string {
	buf := make([]byte, 8<<20)
	return stacksOf(strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n"), number)
}

// seedsOf are those that the environment asks for.
func seedsOf(t *testing.T) (first, n uint64) {
	number := func(name string, v uint64) uint64 {
		if s := os.Getenv(name); s != "" {
			var err error
			if v, err = strconv.ParseUint(s, 10, 32); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		return v
	}
	if one := number("NTBNET_SEED", 1<<63); one != 1<<63 {
		return one, 1
	}
	return 0, number("NTBNET_SEEDS", 64)
}

// The whole stack, on nodes within this process, in a bubble of virtual time: nobody
// waits for the machine, and a wait that nothing ends shows at once. Each seed is a
// fabric, its connections, and what happens to it.
//
//	NTBNET_SEEDS=10000 go test ./sdp -run '^TestBubbles$' -timeout 30m   # the first 10 000 seeds
//	NTBNET_SEED=17 go test ./sdp -run '^TestBubbles$' -count=10          # one of them, ten times
func TestBubbles(t *testing.T) {
	first, n := seedsOf(t)
	var next, ran, skipped, failed atomic.Uint64
	next.Store(first)
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed < first+n && failed.Load() < 40; seed = next.Add(1) - 1 {
					p := planOf(seed)
					if n > 1 && isKnown(p) {
						skipped.Add(1)
						continue
					}
					ran.Add(1)
					if failures := bubble(t, &bubbleWorld{plan: p}); len(failures) > 0 {
						failed.Add(1)
						t.Errorf("seed %d, a %v: %s\nagain: NTBNET_SEED=%d go test ./sdp -run '^TestBubbles$' -count=10",
							seed, p, strings.Join(failures, "\n"), seed)
					}
				}
			})
		}
	})
	t.Logf("%d seeds, %d skipped as known to fail", ran.Load(), skipped.Load())
}

// The same with a device that does what none may do.
func TestBubblesFindFlaws(t *testing.T) {
	for name, flaw := range map[string]flaw{
		"Order does nothing": flawOrder, "doorbells are lost": flawBell, "stores are lost": flawStore, "words overtake stores": flawEarly,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(500) {
				p := planOf(seed)
				if isKnown(p) {
					continue
				}
				if failures := bubble(t, &bubbleWorld{plan: p, flaw: flaw}); len(failures) > 0 {
					again := 0
					for range 10 {
						if len(bubble(t, &bubbleWorld{plan: p, flaw: flaw})) > 0 {
							again++
						}
					}
					t.Logf("seed %d finds it, and again in %d of 10 runs: %.200s", seed, again, strings.Join(failures, "; "))
					return
				}
			}
			t.Error("no seed finds it")
		})
	}
}

func isKnown(p *bubblePlan) bool {
	for _, k := range known {
		if k.covers(p) {
			return true
		}
	}
	return false
}
