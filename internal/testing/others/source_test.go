package main

import (
	"archive/zip"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Go's defaults for old programs, and its old rules, are those of a go.mod's go directive. A suite has the
// same over both transports, and finds what its go.mod names by a relative path.
func TestBothTransportsHaveTheSameGoMod(t *testing.T) {
	for name, replace := range map[string]string{
		"an old go directive": "",
		"a relative replace":  "\nrequire example.org/beside v0.0.0\n\nreplace example.org/beside => ../beside\n",
		"one within it":       "\nrequire example.org/beside v0.0.0\n\nreplace example.org/beside v0.0.0 => ./beside\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				file = filepath.Join(dir, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			write("suite/go.mod", "module example.org/old\n\ngo 1.20\n"+replace)
			imports := ""
			if replace != "" {
				imports = "import _ \"example.org/beside\"\n"
			}
			write("suite/old_test.go", "package old\n"+imports)
			for _, beside := range []string{"beside", "suite/beside"} {
				write(beside+"/go.mod", "module example.org/beside\n\ngo 1.20\n")
				write(beside+"/beside.go", "package beside\n")
			}
			src, err := prepare(t.Context(), suite{target: filepath.Join(dir, "suite")}, t.TempDir())
			require.NoError(t, err)
			trans, err := newTransports(src, "", options{log: io.Discard})
			require.NoError(t, err)
			list, err := src.list(t.Context(), []string{"."})
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.NoError(t, src.patchPackage(list[0]))
			require.NoError(t, src.writeOverlay())
			var defaults [2]string
			for i, r := range []*runner{trans.tcp, trans.sdp, trans.tcp} { // the go command may have changed the go.mod
				args := append([]string{"list", "-test", "-f={{if eq .Name \"main\"}}defaults {{.DefaultGODEBUG}}{{else if not .ForTest}}{{.Module.GoVersion}}{{end}}"}, r.args...)
				defaults[i%2], err = output(t.Context(), src.dir, "go", args...)
				require.NoError(t, err)
				require.NotEmpty(t, defaults[i%2])
			}
			require.Equal(t, defaults[0], defaults[1])
		})
	}
}

// An old module, which has no go.mod, has the one that the go command makes of its path.
func TestAModuleWithoutGoModIsASuite(t *testing.T) {
	const path, version = "example.org/old", "v1.0.0"
	proxy, cache := t.TempDir(), t.TempDir()
	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOMODCACHE", cache)
	t.Cleanup(func() { // the go command makes it read-only
		filepath.WalkDir(cache, func(path string, _ fs.DirEntry, _ error) error { return os.Chmod(path, 0o700) })
	})
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	w, err := z.Create(path + "@" + version + "/old_test.go")
	require.NoError(t, err)
	_, err = io.WriteString(w, "package old\n")
	require.NoError(t, err)
	require.NoError(t, z.Close())
	dir := filepath.Join(proxy, path, "@v")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for suffix, text := range map[string]string{"info": `{"Version":"` + version + `"}`, "mod": "module " + path + "\n", "zip": archive.String()} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, version+"."+suffix), []byte(text), 0o600))
	}
	src, err := prepare(t.Context(), suite{target: path + "@" + version}, t.TempDir())
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(src.dir, "go.mod"))
	require.NoError(t, err)
	require.Equal(t, "module "+path+"\n", string(text))
	require.FileExists(t, filepath.Join(src.dir, "old_test.go"))
}
