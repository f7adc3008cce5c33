package archtest

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
)

// file is one text file of the repository.
type file struct {
	path string // relative to the root, with slashes
	dir  string // the folder, "." for the root
	text []byte
	// syntax is nil unless the file is Go source of a package of this module:
	// not in testdata, not in a nested module.
	syntax *ast.File
}

func (f file) isGo() bool   { return path.Ext(f.path) == ".go" }
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// readTree reads all text files below the root of fsys. It leaves out git's own
// files, and files with a zero byte, which are not text.
func readTree(fsys fs.FS) ([]file, error) {
	var files []file
	foreign := map[string]bool{".": false} // folders that are no package of this module
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another test's file, removed since its folder was read
		}
		if err != nil {
			return err
		}
		if d.Name() == ".git" { // a file in a linked work tree
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		dir := path.Dir(p)
		if d.IsDir() {
			if p != "." {
				foreign[p] = foreign[dir] || ignoredByGo(d.Name()) || exists(fsys, path.Join(p, "go.mod"))
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := fs.ReadFile(fsys, p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		f := file{path: p, dir: dir, text: text}
		if f.isGo() && !foreign[dir] {
			f.syntax, err = parser.ParseFile(token.NewFileSet(), p, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

func ignoredByGo(folder string) bool {
	return folder == "testdata" || folder == "vendor" || strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_")
}

func exists(fsys fs.FS, p string) bool {
	_, err := fs.Stat(fsys, p)
	return err == nil
}

// within reports whether p is root or below it.
func within(p, root string) bool {
	return p == root || strings.HasPrefix(p, root+"/")
}
