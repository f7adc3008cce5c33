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

// plainSockets are the functions and types, by package, with which a Unix socket would be read and closed
// plainly: what its peer has sent could make that take for ever.
var plainSockets = map[string][]string{
	"net":     {"UnixConn", "UnixListener", "DialUnix", "ListenUnix"},
	"unix":    {"Recvmsg", "RecvmsgBuffers", "ParseUnixRights"},
	"syscall": {"Recvmsg", "ParseUnixRights"},
}

// socketRoom is the package that may use them, and typeOnly is the file that has one among the types of
// connections that users give.
const (
	socketRoom = "internal/shm/unixsock"
	typeOnly   = "sdp/zerocopy.go"
)

// checkSockets has Unix sockets, and the files that come over them, go through one package.
func checkSockets(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.syntax == nil || f.isTest() || f.dir == socketRoom || f.path == typeOnly {
			continue
		}
		report := func(what string) {
			bad = append(bad, fmt.Sprintf("%s: no %s here: Unix sockets are those of %s", f.path, what, socketRoom))
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(plainSockets[x.Name], n.Sel.Name) {
					report(x.Name + "." + n.Sel.Name)
				}
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains([]string{"Dial", "DialContext", "DialTimeout", "Listen"}, sel.Sel.Name) {
					return true
				}
				for _, a := range n.Args {
					if lit, ok := a.(*ast.BasicLit); ok && lit.Value == `"unix"` {
						report(sel.Sel.Name + " of \"unix\"")
					}
				}
			}
			return true
		})
	}
	return bad
}

// testRoom has packages that only tests may import, and each other.
const testRoom = "internal/testing"

// checkTestRoom keeps what is for tests out of the product.
func checkTestRoom(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.syntax == nil || f.isTest() || within(f.dir, testRoom) {
			continue
		}
		for _, imp := range imports(f) {
			if within(imp, module+"/"+testRoom) {
				bad = append(bad, fmt.Sprintf("%s: only tests may import %s", f.path, imp))
			}
		}
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
