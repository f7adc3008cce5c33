package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHelpAndVersionServeNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, arg := range []string{"help", "--help", "version", "--version"} {
		var out, errs strings.Builder
		assert.Equal(t, statusOK, run(t.Context(), []string{arg}, &out, &errs), arg)
		assert.Empty(t, errs.String(), arg)
		want := "Usage: ntb-ivshmem-server"
		if strings.Contains(arg, "version") {
			want = ", commit "
		}
		assert.Contains(t, out.String(), want, arg)
	}
	left, err := os.ReadDir(".")
	assert.NoError(t, err)
	assert.Empty(t, left)
}

func TestBadInputIsOneLineAndStatus2(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("a", 110))
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "nothing to do"},
		{[]string{"--size", "3M", "s"}, "want a power of two"},
		{[]string{"--mode", "999", "s"}, "want an octal number"},
		{[]string{"--mode", "0", "s"}, "want an octal number from 1"},
		{[]string{"--nonsense", "s"}, "unknown flag: --nonsense"},
		{[]string{"--file", "f", "s", "t"}, "--file is the memory of one SOCKET"},
		{[]string{"--file", "f", "--size", "1M", "s"}, "--file is the memory of one SOCKET"},
		{[]string{"--file", "none", "s"}, "open none: no such file or directory"},
		{[]string{"--file", "/dev/null", "s"}, "/dev/null: the memory is no file of a file system in memory"},
		{[]string{"--file", "main_linux.go", "s"}, "main_linux.go: the memory is no file of a file system in memory"},
		{[]string{long}, "a Unix socket takes at most 107"},
	} {
		var out, errs strings.Builder
		assert.Equal(t, statusUsage, run(t.Context(), c.args, &out, &errs), "%q", c.args)
		assert.Empty(t, out.String())
		assert.Contains(t, errs.String(), c.want)
		assert.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
}

// A socket that was made before another one could not be is removed.
func TestNoSocketIsLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var out, errs strings.Builder
	assert.Equal(t, statusUsage, run(t.Context(), []string{"--quiet", path, path}, &out, &errs))
	assert.Contains(t, errs.String(), "cannot listen on "+path)
	assert.NoFileExists(t, path)
}
