package hostdir

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
)

// smallCases are explored exhaustively: each order in which the processes' calls of the
// kernel happen, and with each of them ending instead, as often as crashes says.
var smallCases = []struct {
	name    string
	crashes int
	scripts [][]call
}{
	{"numbers", 2, [][]call{{{what: "number"}}, {{what: "number"}}}},
	{"a port for two", 1, [][]call{
		{{what: "number"}, {what: "port", port: 80}},
		{{what: "number"}, {what: "port", port: 80}},
	}},
	{"a port for three", 0, [][]call{
		{{what: "number"}, {what: "port", port: 80}},
		{{what: "number"}, {what: "port", port: 80}},
		{{what: "number"}, {what: "port", port: 80}},
	}},
	{"a port is released", 1, [][]call{
		{{what: "number"}, {what: "port", port: 80}, {what: "release", port: 80}},
		{{what: "number"}, {what: "port", port: 80}, {what: "holder", port: 80}},
	}},
	{"a holder is searched for", 1, [][]call{
		{{what: "number"}, {what: "port", port: MaxPort}, {what: "holder", port: MaxPort}},
		{{what: "number"}, {what: "holder", port: MaxPort}, {what: "holder", port: MaxPort}},
	}},
	{"any port", 1, [][]call{
		{{what: "number"}, {what: "any port", port: freePorts - 1}, {what: "any port", port: freePorts - 1}},
		{{what: "number"}, {what: "any port", port: freePorts - 1}},
	}},
	{"numbers are searched for", 1, [][]call{
		{{what: "number"}, {what: "numbers"}},
		{{what: "number"}, {what: "number"}},
	}},
	{"owners", 1, [][]call{
		{{what: "owner"}, {what: "port", port: 1}},
		{{what: "number"}, {what: "owner"}, {what: "holder", port: ownerPort}},
	}},
	{"sockets", 1, [][]call{
		{{what: "number"}, {what: "publish", port: 80, cookie: 7}, {what: "withdraw", port: 80, cookie: 7}},
		{{what: "number"}, {what: "publish", port: 80, cookie: 7}, {what: "socket", port: 80, cookie: 7}, {what: "any socket", port: 80}},
	}},
}

func visit(fl fault, i int) (wrong string, runs int) {
	c := smallCases[i]
	return explore.Choices(300_000, func(choose func(int) int) string {
		h := newHost(fl, choose)
		h.crashes = c.crashes
		h.run(c.scripts)
		return h.wrong
	})
}

func TestSmallCasesKeepClaims(t *testing.T) {
	explore.Once(t)
	for i, c := range smallCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wrong, runs := visit(noFault, i)
			require.Empty(t, wrong)
			t.Logf("%d runs", runs)
		})
	}
}

// run makes a host in which one number fixes every choice, and has all happen. open is nil,
// or opens a file whose locks are compared with the simulated ones.
func run(fl fault, seed uint64, open func() claimFD) *host {
	rng := rand.New(rand.NewPCG(seed, 0))
	h := newHost(fl, rng.IntN)
	h.open = open
	h.trace = explore.Begin(seed)
	h.crashes = rng.IntN(6)
	ports := []int{1, 2, 80, FirstFree, MaxPort}[:1+rng.IntN(5)]
	port := func() int { return ports[rng.IntN(len(ports))] }
	what := []string{
		"port", "port", "release", "release", "any port", "owner", "holder", "holder",
		"numbers", "publish", "withdraw", "socket", "any socket",
	}
	var scripts [][]call
	for range 2 + rng.IntN(4) {
		script := []call{{what: "number"}}
		for range rng.IntN(12) {
			c := call{what: what[rng.IntN(len(what))], port: port(), cookie: 1 << rng.IntN(40)}
			switch c.what {
			case "any port":
				c.port = []int{0, freePorts - 1}[rng.IntN(2)]
			case "holder":
				if rng.IntN(4) == 0 {
					c.port = ownerPort
				}
			case "publish", "withdraw", "socket":
				c.cookie = 1 << rng.IntN(3)
			}
			script = append(script, c)
		}
		scripts = append(scripts, script)
	}
	h.run(scripts)
	return h
}

// Whatever order the processes' calls of the kernel come in, and wherever processes end, no
// number and no port is given twice, and what is found was there. Each seed determines all of
// it.
//
//	NTBNET_SEEDS=1000000 go test ./internal/hostdir -run Seeds
func TestSeedsKeepClaims(t *testing.T) {
	explore.Seeds(t, 3000, func(seed uint64) (string, explore.Trace) {
		h := run(noFault, seed, nil)
		return h.wrong, h.trace
	})
}

// The simulated locks are those of the kernel.
func TestSeedsKeepClaimsInAFile(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.Chmod(path, 0o700))
	place, err := At(path, 0, "").open(true)
	require.NoError(t, err)
	defer place.close()
	open := func() claimFD {
		f, err := place.openClaims(true)
		require.NoError(t, err)
		return f
	}
	explore.Seeds(t, 300, func(seed uint64) (string, explore.Trace) {
		h := run(noFault, seed, open)
		return h.wrong, h.trace
	})
}

func TestSeedsFindPlantedFaults(t *testing.T) {
	find := func(fl fault, seed uint64) (string, explore.Trace) { h := run(fl, seed, nil); return h.wrong, h.trace }
	explore.Planted(t, faults, find, func(fl fault) (found string) {
		for i := range smallCases {
			if found, _ = visit(fl, i); found != "" {
				break
			}
		}
		return found
	})
}
