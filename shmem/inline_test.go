package shmem

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// An operation is one call of internal/onesided: the functions with type parameters are
// inlined into their callers, and what they check into the one that is called.
func TestOneElementIsOneCall(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles two packages")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command: ", err)
	}
	for dir, want := range map[string][]string{
		"testdata/inline": {
			`shmem\.Put\[go\.shape\.int64\]`, `shmem\.Get\[go\.shape\.int64\]`, `shmem\.P\[go\.shape\.int64\]`,
			`shmem\.AtomicFetchAdd\[go\.shape\.int64\]`,
		},
		"../internal/onesided": {
			`\(\*Ctx\)\.peer`, `\(\*Object\)\.at`, `\(\*Peer\)\.Stored`, `symheap\.Store8`, `symheap\.Load8`,
			`symheap\.AtomicAdd`,
		},
	} {
		cmd := exec.Command(tool, "build", "-gcflags=-m", ".")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		for _, name := range want {
			require.Regexp(t, regexp.MustCompile(`(?m)inlining call to `+name+`$`), string(out))
		}
	}
}
