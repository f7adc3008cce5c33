package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// root returns the folder of the module's go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

func TestRepositoryKeepsItsRules(t *testing.T) {
	files, err := readTree(os.DirFS(root(t)))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f file) bool { return f.path == architecture })
	if i < 0 {
		t.Fatalf("no %s", architecture)
	}
	house, bad := readHouse(string(files[i].text))
	rules := map[string][]string{
		"picture":     append(bad, checkHouse(files, house)...),
		"imports":     checkTable(files, house.imports),
		"third party": checkThirdParty(files),
		"unsafe":      checkUnsafe(files),
		"sockets":     checkSockets(files),
		"test room":   checkTestRoom(files),
		"locks":       checkLocks(files, house.imports),
		"length":      checkLength(files),
		"doc.go":      checkDoc(files),
		"links":       checkLinks(files),
		"text":        checkText(files),
	}
	for rule, bad := range rules {
		for _, b := range bad {
			t.Errorf("%s: %s", rule, b)
		}
	}

	// These files certainly exist. If they were read, a pass means something.
	for _, want := range []string{"go.mod", ".ci/run", "ntb/doc.go", "ntb/store_arm64.s", "ntb/ntbmem/ntbmem.go"} {
		i := slices.IndexFunc(files, func(f file) bool { return f.path == want })
		if i < 0 {
			t.Errorf("%s was not read", want)
		} else if files[i].isGo() && files[i].syntax == nil {
			t.Errorf("%s was not parsed", want)
		}
	}
}
