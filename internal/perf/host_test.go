package perf

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheFirstLineSaysHowManyProcessorsAreUsed(t *testing.T) {
	for _, c := range []struct {
		cpus, of int
		line     string
	}{
		{1, 0, "1 CPU, "}, {2, 0, "2 CPUs, "}, {2, 2, "2 CPUs, "}, {1, 2, "1 of 2 CPUs, "}, {8, 64, "8 of 64 CPUs, "},
	} {
		got := Host{CPUs: c.cpus, Of: c.of, GOMAXPROCS: c.cpus}.String()
		assert.True(t, strings.HasPrefix(got, c.line), got)
	}
}

func TestListsOfProcessors(t *testing.T) {
	for list, n := range map[string]int{
		"0": 1, "0-1": 2, "0-3,8": 5, "0,2-3,5-5": 4, "": 0, "x": 0, "0-": 0, "3-1": 0, "0,": 0, "-1": 0,
	} {
		assert.Equal(t, n, countCPUs(list), list)
	}
}
