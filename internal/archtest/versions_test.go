package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/stretchr/testify/require"
)

// notWire are constants that are named like versions but are not sent.
var notWire = map[string]bool{"shmem.MajorVersion": true, "shmem.MinorVersion": true}

// versions returns the integer constants of packages that are named like a version, by
// folder and name.
func versions(files []file) map[string]string {
	named := regexp.MustCompile(`^([vV]ersion|[vV]ersion[A-Z]\w*|\w*Version)$`)
	found := map[string]string{}
	for _, f := range files {
		if f.syntax == nil || f.isTest() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				return true
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				for i, name := range spec.Names {
					if !named.MatchString(name.Name) || i >= len(spec.Values) {
						continue
					}
					if v, ok := spec.Values[i].(*ast.BasicLit); ok && v.Kind == token.INT && !notWire[f.dir+"."+name.Name] {
						found[f.dir+"."+name.Name] = v.Value
					}
				}
			}
			return true
		})
	}
	return found
}

func TestTheProtocolListsEachVersion(t *testing.T) {
	files, err := readTree(os.DirFS(root(t)))
	require.NoError(t, err)
	listed := map[string]string{}
	for _, row := range wiredoc.Table(t, "Versions", "constant") {
		listed[strings.Trim(row["constant"], "`")] = row["number"]
	}
	require.Equal(t, versions(files), listed)
}

func TestVersionsAreFound(t *testing.T) {
	files := tree(t, map[string]string{
		"a/a.go":      "package a\nconst (\n\tVersion = 2\n\tversionTCP = 3\n\tlinkVersion = 4\n\taversion = 5\n)",
		"a/a_test.go": "package a\nconst testVersion = 1",
		"b/b.go":      "package b\nfunc f() { const version = 6; var Version = 7; _, _ = version, Version }",
	})
	require.Equal(t, map[string]string{
		"a.Version": "2", "a.versionTCP": "3", "a.linkVersion": "4", "b.version": "6",
	}, versions(files))
}
