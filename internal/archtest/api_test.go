package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public are the packages for users.
var public = []string{"sdp", "shmem", "ntb", "ntb/ntbfixed", "ntb/ntbivshmem", "ntb/ntbkernel", "ntb/ntbmem", "ntb/ntbshm"}

// apiFile lists the exported declarations of the public packages.
const apiFile = "internal/archtest/testdata/api.txt"

// updateVariable has TestAPI write apiFile.
const updateVariable = "NTBNET_UPDATE"

// api returns the exported declarations of a package, without comments and bodies, sorted. bad are those
// with a type of an internal package.
func api(files []file, dir string) (decls, bad []string, err error) {
	for _, f := range files {
		if f.dir != dir || !f.isGo() || f.isTest() {
			continue
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, f.path, f.text, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		hidden := map[string]bool{}
		for _, spec := range syntax.Imports {
			imp, _ := strconv.Unquote(spec.Path.Value)
			name := path.Base(imp)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			hidden[name] = strings.Contains(imp, "/internal/")
		}
		ast.FileExports(syntax)
		for _, d := range syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type)) {
					continue
				}
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var text bytes.Buffer
			if err := format.Node(&text, set, d); err != nil {
				return nil, nil, err
			}
			decls = append(decls, text.String())
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ValueSpec: // has a type of this package
					return false
				case *ast.TypeSpec:
					return !n.Assign.IsValid() // users name an alias here
				}
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && hidden[x.Name] {
						bad = append(bad, fmt.Sprintf("%s: %s.%s in %s", f.path, x.Name, s.Sel.Name, text.String()))
					}
				}
				return true
			})
		}
	}
	slices.Sort(decls)
	return slices.Compact(decls), bad, nil // a declaration of several systems once
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// A change of what users may rely on is seen in a change of apiFile, which
//
//	NTBNET_UPDATE=1 go test ./internal/archtest -run TestAPI
//
// writes. A line that goes or changes has a "Migrate" entry in the change log.
func TestAPI(t *testing.T) {
	files, err := readTree(os.DirFS(root(t)))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, dir := range public {
		decls, bad, err := api(files, dir)
		if err != nil || len(decls) == 0 {
			t.Errorf("package %s has %d declarations: %v", dir, len(decls), err)
		}
		for _, b := range bad {
			t.Errorf("users of package %s cannot name a type: %s", dir, b)
		}
		fmt.Fprintf(&text, "package %s\n\n%s\n\n", dir, strings.Join(decls, "\n"))
	}
	name := path.Join(root(t), apiFile)
	if os.Getenv(updateVariable) != "" {
		if err := os.WriteFile(name, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(listed) != text.String() {
		t.Errorf("the exported declarations differ from %s; see this test", apiFile)
	}
}

func TestAPIOfAPackage(t *testing.T) {
	const source = `package sdp

import "github.com/ntbnet/ntbnet/internal/fabric"

// Name is told.
const Name, hidden = "a", 1

type Conn struct {
	Public int
	own    fabric.Kind
}

func (c *Conn) Kind() fabric.Kind { return c.own }
func (c *Conn) Len() int          { return 0 }
func helper()                     {}
`
	decls, bad, err := api(tree(t, map[string]string{"sdp/a.go": source, "sdp/a_test.go": source, "ring/a.go": source}), "sdp")
	if err != nil {
		t.Fatal(err)
	}
	if want := 4; len(decls) != want {
		t.Errorf("%d declarations, want %d: %q", len(decls), want, decls)
	}
	if len(bad) != 1 || !strings.Contains(bad[0], "fabric.Kind") {
		t.Errorf("named as hidden: %q", bad)
	}
}
