package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

const maxLines = 500

// checkLength limits the length of files.
func checkLength(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.syntax == nil || f.isTest() {
			continue
		}
		if n := bytes.Count(f.text, []byte("\n")); n > maxLines {
			bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d: divide it by concern", f.path, n, maxLines))
		}
	}
	return bad
}

// checkLocks requires mutexes of internal/lock, which know their order, in packages that
// may import it.
func checkLocks(files []file, table map[string][]string) []string {
	var bad []string
	for _, f := range files {
		if f.syntax == nil || f.isTest() || !slices.Contains(table[f.dir], "internal/lock") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Mutex" && sel.Sel.Name != "RWMutex" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "sync" {
				bad = append(bad, fmt.Sprintf("%s: no sync.%s here: give it a class of internal/lock", f.path, sel.Sel.Name))
			}
			return true
		})
	}
	return bad
}

// checkDoc requires a doc.go with a package comment in every package.
func checkDoc(files []file) []string {
	docs := map[string]*ast.File{}
	var dirs []string // directories of packages, in order
	for _, f := range files {
		if f.syntax == nil {
			continue
		}
		if _, ok := docs[f.dir]; !ok {
			docs[f.dir] = nil
			dirs = append(dirs, f.dir)
		}
		if path.Base(f.path) == "doc.go" {
			docs[f.dir] = f.syntax
		}
	}
	var bad []string
	for _, dir := range dirs {
		doc := docs[dir]
		if doc == nil {
			bad = append(bad, fmt.Sprintf("package %s has no doc.go", dir))
			continue
		}
		want := "Package " + doc.Name.Name
		if doc.Name.Name == "main" {
			want = "Command " + path.Base(dir)
		}
		if text := doc.Doc.Text(); !regexp.MustCompile("^" + regexp.QuoteMeta(want) + `\b`).MatchString(text) {
			first, _, _ := strings.Cut(text, "\n")
			bad = append(bad, fmt.Sprintf("%s/doc.go: the package comment begins %q, not %q", dir, first, want))
		}
	}
	return bad
}

// The patterns are written so that they do not match themselves.
var (
	unfinished = regexp.MustCompile(`TOD[O]|FIXM[E]|XX[X]`)

	// foreignText matches paths that have no meaning, or another one, on another
	// machine. A path counts only where it is absolute.
	foreignText = regexp.MustCompile(`(?:^|[^\w.~-])/(?:roo[t]|wor[k]|(?:home|Users)/\w+)(?:/|\b)` +
		`|\b(?:goprox[y]\.|(?:proxy|sum|index)\.golan[g]\.org|registr[y]\.npmjs|pyp[i]\.org|pythonhoste[d]\.org` +
		`|de[b]\.debian\.org|(?:archive|security|ports)\.ubunt[u]\.com|dl-cd[n]\.alpinelinux|docke[r]\.io|ghc[r]\.io)`)
)

// checkText finds unfinished work in Go files. In all files it finds paths of one
// machine and host names of registries.
func checkText(files []file) []string {
	var bad []string
	find := func(f file, re *regexp.Regexp, what string) {
		for i, line := range strings.Split(string(f.text), "\n") {
			if m := re.FindString(line); m != "" {
				bad = append(bad, fmt.Sprintf("%s:%d: %s: %q", f.path, i+1, what, m))
			}
		}
	}
	for _, f := range files {
		if f.isGo() {
			find(f, unfinished, "do it now, or write an issue")
		}
		find(f, foreignText, "no paths of one machine and no registries in the repository")
	}
	return bad
}
