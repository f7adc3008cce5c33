package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hooks are the methods of package net that are patched, with what each then does
// first. A method's parameters have these names in its source.
var hooks = []struct{ receiver, method, call string }{
	{"Dialer", "DialContext", "NtbnetDial(d, ctx, network, address)"},
	{"ListenConfig", "Listen", "NtbnetListen(lc, ctx, network, address)"},
}

// patchNet puts a patched copy of net/dial.go into the overlay, the file with the variables that it
// calls, and package divert. Other modules could not import that from where it is.
func (s *source) patchNet() error {
	file := filepath.Join(s.goroot, "src", "net", "dial.go")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err = patchDial(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	s.overlay[filepath.Join(s.goroot, "src", "net", "ntbnet_divert.go")] =
		filepath.Join(s.module, here, "testdata", "net", "ntbnet_divert.go")
	s.overlay[filepath.Join(s.module, "divert", "divert.go")] =
		filepath.Join(s.module, here, "testdata", "divert", "divert.go")
	return s.replace(file, text)
}

// patchDial patches the text of net/dial.go. Line numbers do not change.
func patchDial(text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "dial.go", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var edits []edit
	for _, h := range hooks {
		i := slices.IndexFunc(f.Decls, func(d ast.Decl) bool {
			fn, ok := d.(*ast.FuncDecl)
			return ok && fn.Name.Name == h.method && fn.Recv != nil && receiver(fn) == h.receiver
		})
		if i < 0 {
			return nil, fmt.Errorf("there is no method %s.%s", h.receiver, h.method)
		}
		variable, _, _ := strings.Cut(h.call, "(")
		brace := fset.Position(f.Decls[i].(*ast.FuncDecl).Body.Lbrace).Offset + 1
		edits = append(edits, edit{brace, brace,
			fmt.Sprintf(" if %s != nil { if v, err, ok := %s; ok { return v, err } };", variable, h.call)})
	}
	return apply(text, edits), nil
}

// receiver returns the name of the type that a method with a pointer receiver
// belongs to.
func receiver(fn *ast.FuncDecl) string {
	if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
		if name, ok := star.X.(*ast.Ident); ok {
			return name.Name
		}
	}
	return ""
}

// patchPackage makes a package use SDP: its tests, or the program if it is a command.
func (s *source) patchPackage(p goPackage) error {
	const imports = "import _ \"" + own + "/divert\"\n"
	if p.Name == "main" {
		if err := s.replace(filepath.Join(p.Dir, "ntbnet_divert.go"), []byte("package main\n\n"+imports)); err != nil {
			return err
		}
	}
	tests := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
	if len(tests) == 0 {
		return nil
	}
	if err := s.replace(filepath.Join(p.Dir, "ntbnet_divert_test.go"), []byte("package "+p.Name+"_test\n\n"+imports)); err != nil {
		return err
	}
	for _, name := range tests {
		file := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		patched, err := patchTypes(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if patched == nil {
			continue
		}
		if err := s.replace(file, patched); err != nil {
			return err
		}
	}
	return nil
}

// patchTypes replaces *net.TCPConn, wherever a test names it, by an interface that
// connections of both kinds have. Where the type is embedded in a struct, the name of the
// field stays. It replaces *net.TCPListener too, but only in ln.(*net.TCPListener).Method.
// It returns nil if there is nothing to replace.
func patchTypes(text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	const conn, listener = "net.NtbnetTCPConn", "net.NtbnetTCPListener"
	var edits []edit
	embedded := map[ast.Expr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, f := range n.Fields.List {
				embedded[f.Type] = len(f.Names) == 0
			}
		case *ast.SelectorExpr:
			if a, ok := n.X.(*ast.TypeAssertExpr); ok && isPointer(a.Type, "TCPListener") {
				edits = append(edits, edit{fset.Position(a.Type.Pos()).Offset, fset.Position(a.Type.End()).Offset, listener})
			}
		case *ast.StarExpr:
			if isPointer(n, "TCPConn") {
				e := edit{fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset, conn}
				if embedded[n] {
					e.text = "TCPConn"
					end := edit{len(text), len(text), "\ntype TCPConn = " + conn + "\n"}
					if !slices.Contains(edits, end) {
						edits = append(edits, end)
					}
				}
				edits = append(edits, e)
			}
		}
		return true
	})
	if len(edits) == 0 {
		return nil, nil
	}
	return apply(text, edits), nil
}

// isPointer reports whether an expression is a pointer to a type of package net.
func isPointer(e ast.Expr, name string) bool {
	star, ok := e.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "net"
}

// edit replaces the bytes from from to to by text.
type edit struct {
	from, to int
	text     string
}

// apply makes edits that do not overlap.
func apply(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	text = slices.Clone(text)
	for _, e := range edits {
		text = slices.Replace(text, e.from, e.to, []byte(e.text)...)
	}
	return text
}

// replace puts text into the overlay, as the contents of file.
func (s *source) replace(file string, text []byte) error {
	dir := filepath.Join(s.tmp, "overlay")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	to := filepath.Join(dir, strconv.Itoa(len(s.overlay))+"_"+filepath.Base(file))
	s.overlay[file] = to
	return os.WriteFile(to, text, 0o600)
}

// writeOverlay writes the file that the go command reads.
func (s *source) writeOverlay() error {
	text, err := json.Marshal(struct{ Replace map[string]string }{s.overlay})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.tmp, "overlay.json"), text, 0o600)
}
