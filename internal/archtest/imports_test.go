package archtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// checkTable compares the imports of the module's own packages with the table.
func checkTable(files []file, table map[string][]string) []string {
	var bad []string
	unknown := map[string]bool{}
	for _, f := range files {
		if f.syntax == nil {
			continue
		}
		row, ok := table[f.dir]
		if !ok {
			if !unknown[f.dir] {
				unknown[f.dir] = true
				bad = append(bad, fmt.Sprintf("package %s is not in the table: add a row to %s "+
					"with the packages of this module that it imports, all of them below it in the picture", f.dir, architecture))
			}
			continue
		}
		if f.isTest() {
			continue
		}
		for _, imp := range imports(f) {
			if !within(imp, module) {
				continue
			}
			own := strings.TrimPrefix(strings.TrimPrefix(imp, module), "/")
			if slices.Contains(row, own) {
				continue
			}
			bad = append(bad, fmt.Sprintf("%s: %s may not import %s; it may import: %s",
				f.path, f.dir, own, strings.Join(slices.Concat(row, []string{"nothing else of this module"}), ", ")))
		}
	}
	return bad
}

// cgoRooms are the commands that are built with cgo, and what they share. Their build tags keep them out of other builds.
var cgoRooms = []string{"cmd/libsma", "cmd/libsdp", "internal/csignals"}

// checkThirdParty finds cgo elsewhere, and imports of modules that are not listed or that may
// not be imported there.
func checkThirdParty(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.syntax == nil {
			continue
		}
		for _, imp := range imports(f) {
			if imp == "C" {
				if !slices.Contains(cgoRooms, f.dir) {
					bad = append(bad, fmt.Sprintf("%s: the module is built without cgo, but for %s", f.path, strings.Join(cgoRooms, ", ")))
				}
				continue
			}
			first, _, _ := strings.Cut(imp, "/")
			if !strings.Contains(first, ".") || within(imp, module) {
				continue // in the standard library, or ours
			}
			if why := forbidden(f, imp); why != "" {
				bad = append(bad, fmt.Sprintf("%s: %s may be imported %s", f.path, imp, why))
			}
		}
	}
	return bad
}

// forbidden returns where imp may be imported, if that is not in f. Otherwise it
// returns an empty string.
func forbidden(f file, imp string) string {
	for _, t := range thirdParty {
		if within(imp, t.module) {
			if t.ok(f) {
				return ""
			}
			return t.where
		}
	}
	return "nowhere"
}

// checkUnsafe allows unsafe only in tests and in files named for it.
func checkUnsafe(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.syntax != nil && !f.isTest() && !strings.HasSuffix(f.path, "_unsafe.go") &&
			slices.Contains(imports(f), "unsafe") {
			bad = append(bad, fmt.Sprintf("%s: unsafe may be imported only in files named *_unsafe.go and in tests", f.path))
		}
	}
	return bad
}

func imports(f file) []string {
	var list []string
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		list = append(list, p)
	}
	return list
}
