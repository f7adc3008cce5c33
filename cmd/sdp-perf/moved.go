package main

import "slices"

// benchmarks are the commands that have become benchmarks, each with their names.
var benchmarks = map[string]string{
	"bench": "Latency|Throughput|Many|Connect|Get|Busy",
	"idle":  "Idle",
}

// moved returns an error if the command of that name is one of ntbnet, or a benchmark.
func moved(name string) error {
	if slices.Contains([]string{"topology", "doctor", "ls"}, name) {
		return badInputf("%s is a command of ntbnet: ntbnet %[1]s (go build -o bin/ ./cmd/ntbnet builds it)", name)
	}
	if b, ok := benchmarks[name]; ok {
		return badInputf("%s is a benchmark: cd benchmarks && go test -run '^$' -bench '%s'", name, b)
	}
	return nil
}
