package litmus

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// row matches a row of the table in doc.go: the pair's number, or none in its
// second row, the package and the function.
var row = regexp.MustCompile(`(?m)^//\t(S\d+| {2,3}) +(\w+) +(\w+\.)?(\w+) `)

var number = regexp.MustCompile(`\bS\d+\b`)

// sideOf is a side of a pair in the table.
type sideOf struct{ pkg, typ, function string }

// readTable reads the table of doc.go.
func readTable(t *testing.T) map[string][]sideOf {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][]sideOf{}
	last := ""
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if n := strings.TrimSpace(m[1]); n != "" {
			last = n
		}
		if last != "" {
			table[last] = append(table[last], sideOf{m[2], strings.TrimSuffix(m[3], "."), m[4]})
		}
	}
	if len(table) == 0 {
		t.Fatal("no table in doc.go")
	}
	return table
}

// source is a source file of the project.
type source struct {
	path string
	text string
	fset *token.FileSet
	file *ast.File
}

func (s *source) lines(n ast.Node) (first, last int) {
	return s.fset.Position(n.Pos()).Line, s.fset.Position(n.End()).Line
}

// readSources reads the packages that share memory with others, without their tests.
func readSources(t *testing.T) (all []*source) {
	t.Helper()
	for _, dir := range []string{"bounce", "ring", "internal/tunnel", "internal/link", "shmem", "internal/job", "ntb", "internal/symheap", "internal/activemsg", "internal/onesided", "internal/collective"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				filepath.Base(filepath.Dir(path)) == "ntbtest" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			s := &source{path: path, text: string(text), fset: token.NewFileSet()}
			if s.file, err = parser.ParseFile(s.fset, path, text, parser.ParseComments); err != nil {
				return err
			}
			all = append(all, s)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// function is a function of the code, with the pairs that its comments name.
type function struct {
	source *source
	decl   *ast.FuncDecl
	typ    string
	pairs  map[string]bool
}

func functionsOf(s *source) (all []function) {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		fn := function{source: s, decl: f, pairs: map[string]bool{}}
		if f.Recv != nil {
			typ := f.Recv.List[0].Type
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			if id, ok := typ.(*ast.Ident); ok {
				fn.typ = id.Name
			}
		}
		first, last := s.lines(f)
		if f.Doc != nil {
			first, _ = s.lines(f.Doc)
		}
		for _, c := range s.file.Comments {
			from, to := s.lines(c)
			if from < first || to > last {
				continue
			}
			if text := c.Text(); strings.Contains(text, "pair") {
				for _, n := range number.FindAllString(text, -1) {
					fn.pairs[n] = true
				}
			}
		}
		all = append(all, fn)
	}
	return all
}

func TestEachSideOfAPairNamesItInTheCode(t *testing.T) {
	table := readTable(t)
	type place struct {
		sideOf
		pair string
	}
	named := map[place]bool{}
	for _, s := range readSources(t) {
		for _, f := range functionsOf(s) {
			for n := range f.pairs {
				named[place{sideOf{s.file.Name.Name, f.typ, f.decl.Name.Name}, n}] = true
				if table[n] == nil {
					t.Errorf("%s: %s names pair %s, which is not in the table of doc.go", s.path, f.decl.Name, n)
				}
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(table)) {
		if len(table[n]) != 2 {
			t.Errorf("pair %s has %d sides in the table: %v", n, len(table[n]), table[n])
		}
		for _, s := range table[n] {
			if !named[place{s, n}] {
				t.Errorf("the comments of %s.%s.%s do not name pair %s", s.pkg, s.typ, s.function, n)
			}
		}
	}
}

// orders are the calls that order a store before a look.
var orders = map[string]bool{"Fence": true, "fullFence": true, "Order": true, "Global": true}

// A fence without a number is one that no litmus test shows to be needed.
func TestEachFenceIsOfAPair(t *testing.T) {
	found := 0
	for _, s := range readSources(t) {
		for _, f := range functionsOf(s) {
			if name := f.decl.Name.Name; orders[name] || name == "StoreFence" {
				continue // it only passes the call on
			}
			ast.Inspect(f.decl, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !orders[called(call)] {
					return true
				}
				found++
				if len(f.pairs) == 0 && !alike[s.file.Name.Name+"."+f.decl.Name.Name] {
					t.Errorf("%s: %s orders a store before a look, but names no pair", s.fset.Position(call.Pos()), f.decl.Name)
				}
				return true
			})
		}
	}
	if found < 10 {
		t.Errorf("only %d fences were found", found)
	}
}

// alike are functions whose fence only orders stores, which is OpenSHMEM's fence, or loads.
var alike = map[string]bool{"shmem.PutSignal": true, "ntbfixed.Load": true}

// called returns the name of the called function, without its package or receiver.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
