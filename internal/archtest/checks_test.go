package archtest

import (
	"strings"
	"testing"
	"testing/fstest"
)

// tree makes a small repository of texts by path, and reads it.
func tree(t *testing.T, texts map[string]string) []file {
	t.Helper()
	fsys := fstest.MapFS{}
	for p, text := range texts {
		fsys[p] = &fstest.MapFile{Data: []byte(text)}
	}
	files, err := readTree(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// own returns the import path of a package of this module.
func own(dir string) string { return `"` + module + "/" + dir + `"` }

// houseOf returns a document with a picture and a table. Lines that begin with a bar are
// rows.
func houseOf(lines ...string) string {
	var floors, rows string
	for _, l := range lines {
		if strings.HasPrefix(l, "|") {
			rows += l + "\n"
		} else {
			floors += l + "\n"
		}
	}
	return "\n## The house\n```\n" + floors + "```\n\n" + rows + "\n## Laws\n"
}

func TestEachRuleIsSeenBroken(t *testing.T) {
	small := map[string][]string{"a": {"b"}, "b": {}, "cmd/c": {"a", "internal/d"}, "internal/d": {}, "integration": {}}
	locks := func(files []file) []string {
		return checkLocks(files, map[string][]string{"a": {"internal/lock"}, "b": {}})
	}
	imports := func(files []file) []string { return checkTable(files, small) }
	picture := func(files []file) []string {
		for _, f := range files {
			if f.path == architecture {
				h, bad := readHouse(string(f.text))
				return append(bad, checkHouse(files, h)...)
			}
		}
		return nil
	}
	long := "package a\n" + strings.Repeat("\n", maxLines)
	undone := "TO" + "DO"
	host := "proxy." + "golang.org"

	tests := []struct {
		name  string
		rule  func([]file) []string
		texts map[string]string
		want  []string // a part of each message, in order; none if the rule holds
	}{
		{"import in the table", imports, map[string]string{"a/a.go": "package a\nimport _ " + own("b")}, nil},
		{"import upwards", imports, map[string]string{"b/b.go": "package b\nimport _ " + own("a")}, []string{"b/b.go: b may not import a;"}},
		{"import on a line with build tags", imports,
			map[string]string{"b/b.go": "//go:build windows\n\npackage b\nimport x " + own("a")}, []string{"b may not import a;"}},
		{"import of a package below an allowed one", imports,
			map[string]string{"a/a.go": "package a\nimport _ " + own("b/x")}, []string{"a may not import b/x;"}},
		{"import of the root", imports,
			map[string]string{"a/a.go": "package a\nimport _ \"" + module + "\""}, []string{"a/a.go: a may not import"}},
		{"import of a module with a longer name", imports,
			map[string]string{"a/a.go": "package a\nimport _ \"" + module + "2/x\""}, nil},
		{"import upwards in a test", imports, map[string]string{"b/b_test.go": "package b\nimport _ " + own("a")}, nil},
		{"packages of a row", imports,
			map[string]string{"cmd/c/c.go": "package main\nimport _ " + own("a") + "\nimport _ " + own("internal/d")}, nil},
		{"package of another row", imports,
			map[string]string{"integration/a.go": "package i\nimport _ " + own("internal/d")}, []string{"integration may not import internal/d;"}},
		{"package without a row, told once", imports,
			map[string]string{"x/a.go": "package x", "x/b.go": "package x", "y/y_test.go": "package y"},
			[]string{"package x is not in the table: add a row", "package y is not in the table"}},
		{"package in the root", imports, map[string]string{"go.mod": "", "a.go": "package r"}, []string{"package . is not in the table"}},
		{"nested modules and testdata", imports,
			map[string]string{"n/go.mod": "", "n/m/a.go": "package n", "a/testdata/x/a.go": "package x", "_x/a.go": "package x"}, nil},

		{"picture and table as the packages are", picture, map[string]string{architecture: houseOf("top   a", "low   b", "| `a` | x | `b` |", "| `b` | y | – |"),
			"a/a.go": "package a\nimport _ " + own("b"), "b/b.go": "package b"}, nil},
		{"import that is none any more", picture, map[string]string{architecture: houseOf("top   a", "low   b", "| `a` | x | `b` |", "| `b` | y | – |"),
			"a/a.go": "package a", "b/b.go": "package b"}, []string{"a does not import b"}},
		{"import that does not go down", picture, map[string]string{architecture: houseOf("one   a  b", "| `a` | x | `b` |", "| `b` | y | – |"),
			"a/a.go": "package a\nimport _ " + own("b"), "b/b.go": "package b"}, []string{"b is not below a"}},
		{"package that is not in the picture", picture, map[string]string{architecture: houseOf("top   a", "| `a` | x | – |"),
			"a/a.go": "package a", "b/b.go": "package b"}, []string{"b is on no floor"}},
		{"package that is gone", picture, map[string]string{architecture: houseOf("top   a  b", "| `a` | x | – |", "| `b` | x | – |"),
			"a/a.go": "package a"}, []string{"the picture has b", "the table has b"}},
		{"package on two floors, and in two rows", picture, map[string]string{architecture: houseOf("top   a", "low   a", "| `a` | x | – |", "| `a` | x | – |"),
			"a/a.go": "package a"}, []string{"a is on two floors", "a has two rows"}},
		{"no picture", picture, map[string]string{architecture: "\n## The house\n"}, []string{"no picture"}},

		{"standard library", checkThirdParty, map[string]string{"a/a.go": "package a\nimport (\"net/http\"; \"go/ast\")"}, nil},
		{"x/sys", checkThirdParty, map[string]string{"a/a.go": `package a; import "golang.org/x/sys/unix"`}, nil},
		{"unlisted module", checkThirdParty,
			map[string]string{"a/a_test.go": `package a; import "example.org/x"`}, []string{"a/a_test.go: example.org/x may be imported nowhere"}},
		{"module with a listed name as its beginning", checkThirdParty,
			map[string]string{"a/a.go": `package a; import "golang.org/x/sysx"`}, []string{"nowhere"}},
		{"pflag in a command", checkThirdParty, map[string]string{"cmd/c/c.go": `package main; import "github.com/spf13/pflag"`}, nil},
		{"pflag elsewhere", checkThirdParty, map[string]string{"cmdx/c.go": `package c; import "github.com/spf13/pflag"`}, []string{"in cmd and internal/flags only"}},
		{"testify and x/net in tests", checkThirdParty,
			map[string]string{"a/a_test.go": `package a; import ("github.com/stretchr/testify/require"; "golang.org/x/net/nettest")`}, nil},
		{"testify and x/net in code", checkThirdParty,
			map[string]string{"a/a.go": `package a; import ("github.com/stretchr/testify/require"; "golang.org/x/net/nettest")`},
			[]string{"testify/require may be imported in tests only", "nettest may be imported in tests only"}},
		{"cgo in the library for C", checkThirdParty, map[string]string{"cmd/libsma/a_unsafe.go": `package main; import "C"`}, nil},
		{"cgo", checkThirdParty, map[string]string{"a/a_test.go": `package a; import "C"`}, []string{"without cgo"}},

		{"unsafe where it may be", checkUnsafe, map[string]string{
			"a/a_unsafe.go": `package a; import "unsafe"`, "a/a_test.go": `package a; import "unsafe"`,
			"a/b_unsafe_test.go": `package a; import "unsafe"`}, nil},
		{"unsafe elsewhere", checkUnsafe, map[string]string{
			"a/a.go": `package a; import _ "unsafe"`, "a/unsafe_linux.go": `package a; import "unsafe"`},
			[]string{"a/a.go: unsafe", "a/unsafe_linux.go: unsafe"}},

		{"mutex with a class, and where none is wanted", locks, map[string]string{
			"a/a.go": "package a; var mu lock.Mutex[lock.A]; var wg sync.WaitGroup", "b/b.go": "package b; var mu sync.Mutex",
			"a/a_test.go": "package a; var mu sync.Mutex"}, nil},
		{"mutex without a class", locks, map[string]string{"a/a.go": "package a; type t struct { sync.Mutex; mu *sync.RWMutex }"},
			[]string{"a/a.go: no sync.Mutex here", "a/a.go: no sync.RWMutex here"}},

		{"Unix sockets in their package, in tests, and other sockets", checkSockets, map[string]string{
			"internal/shm/unixsock/a.go": "package unixsock; var c *net.UnixConn", "a/a_test.go": "package a; var c *net.UnixConn",
			"a/a.go": "package a; func f() { net.Dial(\"tcp\", \"x\") }"}, nil},
		{"plain Unix sockets", checkSockets, map[string]string{
			"a/a.go": "package a; func f(c *net.UnixConn) { d.DialContext(ctx, \"unix\", \"x\"); unix.Recvmsg(1, nil, nil, 0) }"},
			[]string{"a/a.go: no net.UnixConn here", "no DialContext of", "no unix.Recvmsg here"}},

		{"what is for tests, in tests and beside it", checkTestRoom, map[string]string{
			"a/a_test.go": "package a\nimport _ " + own("internal/testing/x"), "a/a.go": "package a\nimport _ " + own("internal/testingx"),
			"internal/testing/y/y.go": "package y\nimport _ " + own("internal/testing/x")}, nil},
		{"what is for tests, elsewhere", checkTestRoom,
			map[string]string{"a/a.go": "package a\nimport _ " + own("internal/testing/x")}, []string{"a/a.go: only tests may import"}},

		{"longest file", checkLength, map[string]string{"a/a.go": long[:len(long)-1], "a/a_test.go": long + "\n\n"}, nil},
		{"file too long", checkLength, map[string]string{"a/a.go": long}, []string{"a/a.go has 501 lines"}},

		{"doc.go", checkDoc, map[string]string{
			"a/doc.go": "// Package a is.\npackage a", "a/a.go": "package a",
			"cmd/c/doc.go": "// Command c does.\npackage main"}, nil},
		{"no doc.go", checkDoc, map[string]string{"a/a.go": "// Package a is.\npackage a", "b/b_test.go": "package b"},
			[]string{"package a has no doc.go", "package b has no doc.go"}},
		{"doc.go without a comment", checkDoc, map[string]string{"a/doc.go": "package a"}, []string{`begins "", not "Package a"`}},
		{"comment that is not the package's", checkDoc, map[string]string{"a/doc.go": "// Package a is.\n\npackage a"}, []string{`begins ""`}},
		{"comment with another name", checkDoc, map[string]string{"a/doc.go": "// Package ab is.\npackage a"}, []string{`begins "Package ab is."`}},
		{"command called a package", checkDoc, map[string]string{"cmd/c/doc.go": "// Package main is.\npackage main"}, []string{`not "Command c"`}},

		{"links that lead somewhere", checkLinks, map[string]string{
			"a.md": "# One `x`, two!\n[a](#one-x-two) [b](d/b.md#b) [d](d) [e](https://example.org/x)\n```\n[x](no.md)\n```", "d/b.md": "## B\n[a](../a.md)"}, nil},
		{"links that do not", checkLinks, map[string]string{"a.md": "[x](b.md) [x](c.md#x) [x](#x)", "c.md": ""},
			[]string{"(b.md)", "(c.md#x)", "(#x)"}},

		{"unfinished", checkText, map[string]string{"a/a.go": "package a\n// " + undone + ": more", "a.md": undone}, []string{"a/a.go:2: do it now"}},
		{"unfinished in testdata", checkText, map[string]string{"a/testdata/a.go": "FIX" + "ME"}, []string{"a/testdata/a.go:1: do it now"}},
		{"paths of any machine", checkText, map[string]string{
			"a.md": "/proc/self/maps /usr/bin/env ./wo" + "rk/x https://example.org/ho" + "me/x a/ro" + "ot/b ~/wo" + "rk"}, nil},
		{"paths of one machine", checkText, map[string]string{
			".ci/run": "cd /ro" + "ot/x", "a.md": "x\n\"/wo" + "rk\"", "b.md": "cp /ho" + "me/joe/x ."},
			[]string{`.ci/run:1: no paths`, `a.md:2: no paths`, `b.md:1: no paths`}},
		{"registries", checkText, map[string]string{"go.env": "GOPROXY=https://" + host}, []string{"go.env:1: no paths of one machine and no registries"}},
		{"files that are not text", checkText, map[string]string{"prog": "\x00" + host, ".git": "gitdir: /wo" + "rk/x"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.rule(tree(t, tt.texts))
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tt.want[i]) {
					t.Errorf("got %q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
}

func TestSourceThatDoesNotParseIsAnError(t *testing.T) {
	_, err := readTree(fstest.MapFS{"a/a.go": &fstest.MapFile{Data: []byte("pakcage a")}})
	if err == nil {
		t.Fatal("no error")
	}
}
