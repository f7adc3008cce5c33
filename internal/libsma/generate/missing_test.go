package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leftOut says why package shmem has no such name. Deprecated names have one reason.
var leftOut = map[string]string{
	"addr_accessible":   "a `Sym` is always accessible",
	"ctx_session_start": "hints would change nothing",
	"ctx_session_stop":  "hints would change nothing",
	"pcontrol":          "Go programs are profiled by other means",
	"query_initialized": "a World is open from `Open` to `Close`",
	"query_thread":      "there is one level",
}

const deprecatedReason = "deprecated"

// page has a table which begins with tableHead. It ends at an empty line, or with the page.
const (
	page      = "../../../docs/shmem.md"
	tableHead = "| names | C | Go |\n|---|---|---|\n"
)

// TestWhatIsLeftOut compares the names of the specification with the table of C functions and with what the comments of
// package shmem say that its declarations are like. NTBNET_UPDATE=1 writes the table of what is missing.
func TestWhatIsLeftOut(t *testing.T) {
	inC, inGo, families := map[string]bool{}, said(t), familyNames()
	for _, f := range functions() {
		inC[f.name] = true
	}
	lacks, old := map[string]bool{}, map[string]bool{} // families without a name in C; those of which all names are deprecated
	for _, p := range prototypesOf(t, "current", "deprecated") {
		name, ok := families[p.name]
		if !ok {
			name = strings.TrimPrefix(p.name, "shmem_")
		}
		lacks[name] = lacks[name] || !inC[p.name]
		if was, ok := old[name]; !ok || was {
			old[name] = p.kind == "deprecated"
		}
	}
	rows := map[string][]string{} // names by the rest of the row
	for _, name := range slices.Sorted(maps.Keys(lacks)) {
		c, reason := "yes", leftOut[name]
		if lacks[name] {
			c = "no"
		}
		if old[name] {
			reason = deprecatedReason
		}
		assert.Equal(t, !inGo[name], reason != "", "%s: in Go %v, a reason to leave it out: %q", name, inGo[name], reason)
		if lacks[name] || reason != "" {
			rest := " | " + c + " | " + reason + " |\n"
			rows[rest] = append(rows[rest], "`"+name+"`")
		}
	}
	for name := range leftOut {
		assert.Contains(t, lacks, name, "a reason for a name that is none")
	}
	table := tableHead
	for _, rest := range slices.SortedFunc(maps.Keys(rows), func(a, b string) int { return strings.Compare(rows[a][0], rows[b][0]) }) {
		table += "| " + strings.Join(rows[rest], ", ") + rest
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), tableHead)
	require.True(t, found, "%s has no line %q", page, tableHead)
	have, after, more := strings.Cut(rest, "\n\n")
	if more {
		have, after = have+"\n", "\n"+after
	}
	if os.Getenv("NTBNET_UPDATE") != "" {
		require.NoError(t, os.WriteFile(page, []byte(before+table+after), 0o644))
		return
	}
	assert.Equal(t, table, tableHead+have, "%s: NTBNET_UPDATE=1 go test ./internal/libsma/generate writes it", page)
}

// familyNames returns, by the name of a function, what it and those of other types, sizes and contexts are called.
func familyNames() map[string]string {
	all := map[string]string{}
	for _, c := range chapters() {
		for _, f := range c.families {
			name := strings.TrimSuffix(strings.TrimPrefix(f.name, "="), "mem")
			switch name {
			case "ctx_fence", "ctx_quiet":
				name = strings.TrimPrefix(name, "ctx_")
			}
			for _, one := range f.functions() {
				all[one.name] = name
			}
		}
	}
	return all
}

// said returns the functions of C of which the comments of exported declarations speak.
func said(t *testing.T) map[string]bool {
	files, err := filepath.Glob("../../../shmem/*.go")
	require.NoError(t, err)
	all := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range f.Decls {
			var doc *ast.CommentGroup
			switch d := d.(type) {
			case *ast.FuncDecl:
				doc = d.Doc
			case *ast.GenDecl:
				doc = d.Doc
			}
			for _, m := range regexp.MustCompile(`shmem_([a-z0-9_]+)`).FindAllStringSubmatch(strings.Join(strings.Fields(doc.Text()), " "), -1) {
				all[m[1]] = true
			}
		}
	}
	return all
}
