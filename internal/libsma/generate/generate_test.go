package main

import (
	"os"
	"path/filepath"
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

// The table has the names of the specification, each with its parameters.
func TestTheTableHasThePrototypesOfTheSpecification(t *testing.T) {
	want, have := map[string]string{}, map[string]string{}
	deprecated := 0
	for _, p := range specification(t) {
		if p.deprecated {
			deprecated++
		}
		want[p.name] = p.text
	}
	require.Len(t, want, 1685+103)
	require.Equal(t, 103, deprecated)
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
	name, text string
	deprecated bool
}

// specification returns the prototypes of the list in testdata.
func specification(t *testing.T) (all []prototype) {
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
		for _, v := range types[f[1]] {
			one := strings.NewReplacer("TYPENAME", v[0], "SIZE", v[0], "TYPE", v[1]).Replace(f[2])
			name, _, _ := strings.Cut(one, "(")
			all = append(all, prototype{name[strings.LastIndexAny(name, " *")+1:], one, f[0] == "deprecated"})
		}
	}
	return all
}
