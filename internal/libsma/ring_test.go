//go:build linux

package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each PE is a node of a ring of four, in which one is two hops away, or two PEs share the links of a node. However a PE
// ends, the others do so too.
func TestRings(t *testing.T) {
	exe, mistakes := compile(t, "oshcc", hello), compile(t, "oshcc", "../../cmd/libsma/testdata/programs/mistakes.c")
	for _, hosts := range [][]string{{"--hosts", "4"}, {"--hosts", "2"}, {"--hosts", "2", "--map-by", "node"}} {
		assert.Equal(t, result{0, "4 PEs, sum 10\n", ""}, start(t, 4, nil, append(hosts, exe)...), hosts)
		for what, status := range map[string]int{"kill": 137, "exit": 7, "global": 9} {
			r := start(t, 4, nil, append(hosts, "--grace", "1m", mistakes, what)...)
			assert.Equal(t, status, r.status, "%s %v", what, hosts)
			assert.Contains(t, r.out, "printed before", what)
			for pe := 1; what == "kill" && pe < 4; pe++ {
				assert.Regexp(t, fmt.Sprintf("(?m)^libsma: PE %d: \\w+: PE 0 has ended: ", pe), r.errors)
			}
		}
	}
}
