package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// plainWords matches phrases that comments and documents do not use. A sentence names
// the actor, and a function with a bool result "reports whether" something is so. The
// pattern is written so that it does not match itself.
var plainWords = regexp.MustCompile(`(?i)\b(whoeve[r]|in\s+vai[n]|tells\s+(?:i[f]|whethe[r]))\b`)

// checkWords finds phrases of plainWords in the comments of Go files and in documents,
// and doc comments of functions that say of the function that it tells something.
func checkWords(files []file) []string {
	var bad []string
	for _, f := range files {
		switch {
		case f.isGo():
			bad = append(bad, commentWords(f)...)
		case path.Ext(f.path) == ".md":
			text := mdBlock.ReplaceAllStringFunc(string(f.text), func(block string) string {
				return strings.Repeat("\n", strings.Count(block, "\n"))
			})
			for _, m := range plainWords.FindAllStringIndex(text, -1) {
				line := 1 + strings.Count(text[:m[0]], "\n")
				bad = append(bad, fmt.Sprintf("%s:%d: not in a document: %q", f.path, line, text[m[0]:m[1]]))
			}
		}
	}
	return bad
}

// commentWords is checkWords for a Go file. Files outside of this module's packages are
// not parsed yet.
func commentWords(f file) (bad []string) {
	syntax := f.syntax
	if syntax == nil {
		var err error
		syntax, err = parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return []string{err.Error()}
		}
	}
	lineOf := func(pos token.Pos) int {
		return 1 + strings.Count(string(f.text[:pos-syntax.FileStart]), "\n")
	}
	for _, g := range syntax.Comments {
		// A phrase may go on in the next line, so the lines are joined.
		var text strings.Builder
		var starts []int // of each comment in text
		for _, c := range g.List {
			starts = append(starts, text.Len())
			text.WriteString(strings.Trim(c.Text, "/* \t"))
			text.WriteByte(' ')
		}
		for _, m := range plainWords.FindAllStringIndex(text.String(), -1) {
			i, found := slices.BinarySearch(starts, m[0])
			if !found {
				i--
			}
			bad = append(bad, fmt.Sprintf("%s:%d: not in a comment: %q",
				f.path, lineOf(g.List[i].Pos()), text.String()[m[0]:m[1]]))
		}
	}
	tells := func(name *ast.Ident, doc *ast.CommentGroup) {
		if strings.HasPrefix(doc.Text(), name.Name+" tells ") {
			bad = append(bad, fmt.Sprintf("%s:%d: %s reports, returns or sends something; it does not tell it",
				f.path, lineOf(doc.Pos()), name.Name))
		}
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			tells(n.Name, n.Doc)
		case *ast.InterfaceType:
			for _, method := range n.Methods.List {
				for _, name := range method.Names {
					tells(name, method.Doc)
				}
			}
		}
		return true
	})
	return bad
}
