package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Waiting is one policy, of few lines and constants, wherever this module polls before it sleeps.
func TestWaitingIsSmall(t *testing.T) {
	const mostLines, mostConstants = 1000, 16 // lines without comments and empty ones
	files, err := filepath.Glob("../wait/*.go")
	require.NoError(t, err)
	files = append(files, "../../ring/polling.go", "../../bounce/waiter.go", "../onesided/wait.go", "../../ntb/ntbfixed/pace.go")
	lines, constants := 0, []string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for line := range bytes.Lines(text) {
			if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) {
				lines++
			}
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		require.NoError(t, err)
		constants = append(constants, constantsOf(f)...)
	}
	t.Logf("%d lines, %d constants: %v", lines, len(constants), constants)
	require.LessOrEqual(t, lines, mostLines)
	require.LessOrEqual(t, len(constants), mostConstants, constants)
}

// constantsOf returns the names of a file's constants, but for those of enumerations.
func constantsOf(f *ast.File) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		d, ok := n.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST || d.Specs[0].(*ast.ValueSpec).Type != nil {
			return true
		}
		for _, s := range d.Specs {
			for _, name := range s.(*ast.ValueSpec).Names {
				names = append(names, name.Name)
			}
		}
		return true
	})
	return names
}
