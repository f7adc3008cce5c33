package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGeneratedFilesAreFresh(t *testing.T) {
	for name, text := range files() {
		have, err := os.ReadFile(filepath.Join("../../../cmd/libsma", name))
		require.NoError(t, err)
		assert.True(t, text == string(have), "%s: run go generate -tags libsma in cmd/libsma", name)
	}
}

// The table has the names of the specification and the extensions, each with its parameters.
func TestTheTableHasThePrototypesOfTheSpecification(t *testing.T) {
	want, have := map[string]string{}, map[string]string{}
	kinds := map[string]int{}
	for _, p := range prototypesOf(t, "current", "deprecated", "extension") {
		kinds[p.kind]++
		want[p.name] = p.text
	}
	require.Equal(t, map[string]int{"current": 1685, "deprecated": 103, "extension": 8*9 + 12*2}, kinds)
	require.Len(t, want, 1685+103+96)
	for _, f := range functions() {
		have[f.name] = space(f.ret) + f.name + "(" + f.params + ")"
	}
	for name, text := range want {
		assert.Equal(t, text, have[name])
	}
	for name := range have {
		assert.Contains(t, want, name)
	}
}

type prototype struct {
	name, text, kind string
}

// prototypesOf returns the prototypes of these kinds in the list of testdata.
func prototypesOf(t *testing.T, kinds ...string) (all []prototype) {
	t.Helper()
	text, err := os.ReadFile("../../../cmd/libsma/testdata/openshmem-1.6.txt")
	require.NoError(t, err)
	types := map[string][][2]string{"-": {{"", ""}}}
	for _, bits := range []string{"8", "16", "32", "64", "128"} {
		types["size"] = append(types["size"], [2]string{bits, ""})
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(f) < 3 || f[0] == "#" {
			continue
		}
		if f[0] == "type" {
			name, c, _ := strings.Cut(f[2], " ")
			types[f[1]] = append(types[f[1]], [2]string{name, c})
			continue
		}
		require.NotEmpty(t, types[f[1]], line)
		if !slices.Contains(kinds, f[0]) {
			continue
		}
		for _, v := range types[f[1]] {
			one := strings.NewReplacer("TYPENAME", v[0], "SIZE", v[0], "TYPE", v[1]).Replace(f[2])
			name, _, _ := strings.Cut(one, "(")
			all = append(all, prototype{name[strings.LastIndexAny(name, " *")+1:], one, f[0]})
		}
	}
	return all
}
