package main

import "slices"

// benchmarks are the commands that have become benchmarks, each with their names.
var benchmarks = map[string]string{
	"bench":     "Latency|Throughput|Many|Connect|Get|Busy",
	"crossover": "Crossover",
	"limits":    "Word|Copies|Hops/hops=/chain=bare",
	"ring":      "Hops|Ring|Share",
}

// moved returns an error if the command of that name is one of ntbnet, a benchmark, or a flag.
func moved(name string) error {
	if slices.Contains([]string{"topology", "doctor", "ls"}, name) {
		return badInputf("%s is a command of ntbnet: ntbnet %[1]s (go build -o bin/ ./cmd/ntbnet builds it)", name)
	}
	switch name {
	case "server":
		return badInputf("server is a flag: sdp-perf -s (see sdp-perf --help)")
	case "client":
		return badInputf("client is a flag: sdp-perf -c HOST TEST (see sdp-perf --help)")
	}
	if b, ok := benchmarks[name]; ok {
		return badInputf("%s is a benchmark: cd benchmarks && go test -run '^$' -bench '%s'", name, b)
	}
	return nil
}
