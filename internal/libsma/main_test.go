//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	status := m.Run()
	if dir, err := built(); dir != "" && err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// built installs the library and shmemrun once.
var built = sync.OnceValues(func() (string, error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "libsma")
	if err != nil {
		return "", err
	}
	if _, err := install(dir); err != nil {
		return dir, err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "bin", "shmemrun"), "github.com/ntbnet/ntbnet/cmd/shmemrun").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// installed returns where the library is installed. Without gcc the test is skipped, but not
// in CI.
func installed(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil && dir == "" && os.Getenv("CI") != "true" {
		t.Skipf("%v: the library for C needs gcc", err)
	}
	require.NoError(t, err)
	return dir
}

// result is what a command has done.
type result struct {
	status      int
	out, errors string
}

// printed is what a command has printed.
type printed struct {
	text strings.Builder
	last time.Time // when it last printed
}

func (p *printed) Write(b []byte) (int, error) {
	p.last = time.Now()
	return p.text.Write(b)
}

// run runs a command to its end.
func run(t *testing.T, env []string, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errors printed
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &errors
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "%s\n%s", &out.text, &errors.text)
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	if cmd.ProcessState.ExitCode() != 0 {
		t.Logf("%q: ended %v after it had last printed output", cmd.Args, time.Since(out.last).Round(time.Millisecond))
	}
	return result{cmd.ProcessState.ExitCode(), out.text.String(), errors.text.String()}
}

// compile builds a program, and returns its path.
func compile(t *testing.T, compiler string, args ...string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "prog")
	r := run(t, nil, filepath.Join(installed(t), "bin", compiler), append([]string{"-Wall", "-Wextra", "-Werror", "-o", exe}, args...)...)
	require.Zero(t, r.status, r.errors)
	return exe
}

// start runs a program with some PEs.
func start(t *testing.T, pes int, env []string, args ...string) result {
	t.Helper()
	return run(t, env, filepath.Join(installed(t), "bin", "shmemrun"), append([]string{"-n", fmt.Sprint(pes)}, args...)...)
}

// ways are how PEs reach each other.
var ways = map[string][]string{"mapped": nil, "by requests": {"SHMEM_STRICT=1"}}

// nodesOf returns the variables of two PEs, each a node. Both have a file in common.
func nodesOf(t *testing.T, options string) (env [2][]string) {
	t.Helper()
	memory := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(memory, nil, 0o600))
	require.NoError(t, os.Truncate(memory, 128<<20))
	for pe, side := range []string{"right", "left"} {
		env[pe] = []string{"SHMEM_NPES=2", fmt.Sprint("SHMEM_PE=", pe), "SHMEM_JOB=" + fabrictest.Name(t),
			fmt.Sprintf("SDP_FABRIC=line:%s?node=%d&nodes=2&%s&%s=file:%s", fabrictest.Name(t), pe+1, options, side, memory)}
	}
	return env
}

// onNodes runs a program with a PE on each of two nodes.
func onNodes(t *testing.T, options, exe string, more ...string) (r [2]result) {
	t.Helper()
	var all sync.WaitGroup
	for pe, env := range nodesOf(t, options) {
		all.Go(func() { r[pe] = run(t, append(env, more...), exe) })
	}
	all.Wait()
	return r
}

func TestChaptersOfTheSpecification(t *testing.T) {
	sources, err := filepath.Glob("../../cmd/libsma/testdata/chapters/*.c")
	require.NoError(t, err)
	exe := compile(t, "oshcc", append(sources, "-O1")...)
	few := os.Getenv("NTBNET_LONG") == "" // each number of PEs, in one way
	for way, env := range ways {
		for pes := 1; pes <= 4; pes++ {
			if few && pes != 3 && len(env) > 0 {
				continue
			}
			r := start(t, pes, env, exe)
			require.Equal(t, result{0, "passed\n", ""}, r, "%d PEs, %s", pes, way)
		}
	}
	for _, options := range []string{"heap=50331648", "puts=window", "puts=window&heap=50331648"} {
		require.Equal(t, [2]result{{0, "passed\n", ""}, {}}, onNodes(t, options, exe), options)
	}
	require.Equal(t, result{0, "passed\n", ""}, start(t, 4, nil, "--hosts", "4", exe), "a ring of 4 nodes")
	require.Equal(t, result{0, "passed\n", ""}, start(t, 4, nil, "--hosts", "2", "--map-by", "node", exe), "two PEs a node")
}

func TestTheLibraryIsOpenedAgain(t *testing.T) {
	exe := compile(t, "oshcc", "../../cmd/libsma/testdata/programs/again.c")
	for way, env := range ways {
		assert.Equal(t, result{0, "passed\n", ""}, start(t, 3, env, exe), way)
	}
	// A node that opens again before its neighbour has closed may log that their link has gone down.
	for _, hosts := range []string{"4", "2"} {
		r := start(t, 4, nil, "--hosts", hosts, exe)
		assert.Equal(t, result{0, "passed\n", r.errors}, r, hosts)
	}
	for _, options := range []string{"heap=50331648", "puts=window&heap=8388608"} {
		r := onNodes(t, options, exe)
		assert.Equal(t, [2]result{{0, "passed\n", r[0].errors}, {0, "", r[1].errors}}, r, options)
	}
	if _, err := exec.LookPath("mpiexec.hydra"); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	r := run(t, nil, "mpiexec.hydra", "-n", "3", exe)
	assert.Equal(t, result{0, "passed\n", r.errors}, r)
}

// Sanitizers find what a program does, and nothing that the library does.
func TestProgramsRunUnderSanitizers(t *testing.T) {
	sources, err := filepath.Glob("../../cmd/libsma/testdata/chapters/*.c")
	require.NoError(t, err)
	const mistake = "../../cmd/libsma/testdata/programs/beyond.c"
	for _, compiler := range []string{"gcc", "clang"} {
		t.Run(compiler, func(t *testing.T) {
			flags := []string{"-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
			t.Setenv("SHMEM_CC", compiler)
			if out, err := exec.Command(compiler, append(flags, "-o", "/dev/null", "../../cmd/libsma/testdata/programs/empty.c")...).CombinedOutput(); err != nil && os.Getenv("CI") != "true" {
				t.Skipf("%s has no sanitizers here: %s", compiler, out)
			}
			r := start(t, 3, nil, compile(t, "oshcc", append(flags, sources...)...))
			require.Equal(t, result{0, "passed\n", ""}, r)
			r = start(t, 1, nil, compile(t, "oshcc", append(flags, mistake)...))
			require.NotZero(t, r.status)
			require.Contains(t, r.errors, "heap-buffer-overflow")
			require.Contains(t, r.errors, "beyond.c:")
		})
	}
}

// So does valgrind, with the suppressions that are installed.
func TestProgramsRunUnderValgrind(t *testing.T) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	require.NoError(t, err)
	under := []string{valgrind, "-q", "--error-exitcode=9", "--suppressions=" + filepath.Join(installed(t), "lib/valgrind.supp")}
	env := []string{"SHMEM_SYMMETRIC_SIZE=16M", "GODEBUG=cpu.rdtscp=off"} // valgrind says that each processor has it
	r := start(t, 2, env, append(under, compile(t, "oshcc", "-g", "../../cmd/libsma/testdata/programs/hello.c"))...)
	require.Zero(t, r.status, r.errors)
	r = start(t, 1, env, append(under, compile(t, "oshcc", "-g", "../../cmd/libsma/testdata/programs/beyond.c"))...)
	require.Equal(t, 9, r.status, r.errors)
	require.Contains(t, r.errors, "Invalid read")
	require.Contains(t, r.errors, "beyond.c:")
}

func TestTypeGenericFunctions(t *testing.T) {
	source := "../../cmd/libsma/testdata/programs/generic.c"
	for _, args := range [][]string{{"oshcc", "-std=c11"}, {"oshcc", "-std=gnu17", "-no-pie", "-O2"}, {"oshc++", "-x", "c++"}} {
		exe := compile(t, args[0], append(args[1:], source)...)
		assert.Equal(t, result{0, "passed\n", ""}, start(t, 2, nil, exe), args)
		assert.Equal(t, result{0, "passed\n", ""}, start(t, 4, nil, "--hosts", "4", exe), args)
	}
}

// hello is a program of some lines.
const hello = "../../cmd/libsma/testdata/programs/hello.c"

func TestTheBuildsOfAProgram(t *testing.T) {
	for _, compiler := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(compiler); err != nil && os.Getenv("CI") != "true" {
			t.Skip(err)
		}
		for _, flags := range []string{"-fPIE -pie", "-no-pie", "-fPIE -pie -Wl,-z,relro,-z,now", "-no-pie -Wl,-z,norelro"} {
			t.Setenv("SHMEM_CC", compiler)
			t.Setenv("SHMEM_CXX", strings.NewReplacer("gcc", "g++", "clang", "clang++").Replace(compiler))
			for _, as := range [][]string{{"oshcc"}, {"oshc++", "-x", "c++"}} {
				exe := compile(t, as[0], slices.Concat(strings.Fields(flags), as[1:], []string{hello})...)
				assert.Equal(t, result{0, "2 PEs, sum 3\n", ""}, start(t, 2, nil, exe), "%s %s %s", compiler, flags, as)
			}
		}
	}
}

// Launchers of other projects start programs as shmemrun does.
func TestLaunchers(t *testing.T) {
	exe := compile(t, "oshcc", hello)
	for _, launcher := range []string{"mpiexec.hydra", "oshrun --oversubscribe"} {
		words := append(strings.Fields(launcher), "-n", "3", exe)
		if _, err := exec.LookPath(words[0]); err != nil && os.Getenv("CI") != "true" {
			t.Skip(err)
		}
		r := run(t, []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, words[0], words[1:]...)
		assert.Zero(t, r.status, r.errors)
		assert.Equal(t, "3 PEs, sum 6\n", r.out, launcher)
	}
	assert.Equal(t, result{0, "7 PEs, sum 28\n", ""}, start(t, 7, nil, exe))
}

func TestTheVariablesOfTheSpecification(t *testing.T) {
	exe := compile(t, "oshcc", hello)
	r := start(t, 2, []string{"SHMEM_VERSION=1", "SMA_INFO=1", "SMA_DEBUG=1", "SMA_SYMMETRIC_SIZE=2m"}, exe)
	assert.Equal(t, result{0, "2 PEs, sum 3\n", r.errors}, r)
	assert.Regexp(t, `^OpenSHMEM 1\.6, ntbnet .+\nOpenSHMEM reads these environment variables, .+\n(  SHMEM_.+\n){4}$`, r.errors, "PE 0 alone prints them")
	r = start(t, 2, []string{"SHMEM_SYMMETRIC_SIZE=lots"}, exe)
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.errors, "SHMEM_SYMMETRIC_SIZE=lots: want bytes up to 1t")
}

// One file takes the address of each name with its declared type, in C and in C++.
func TestEachNameHasItsType(t *testing.T) {
	text := "#include <shmem.h>\n#include <pshmem.h>\n"
	for i, p := range names(t) {
		name, params, _ := strings.Cut(p, "(")
		at := strings.LastIndexAny(name, " *") + 1
		ret, name := name[:at], name[at:]
		text += fmt.Sprintf("%s(*volatile p%d)(%s = %s;\n", ret, i, params, name)
		if strings.HasPrefix(name, "shmem_") {
			text += fmt.Sprintf("%s(*volatile q%d)(%s = p%s;\n", ret, i, params, name)
		}
	}
	text += "int main(void) { return 0; }\n"
	source := filepath.Join(t.TempDir(), "names.c")
	require.NoError(t, os.WriteFile(source, []byte(text), 0o644))
	for _, args := range [][]string{{"oshcc", "-std=c99"}, {"oshcc", "-std=c11"}, {"oshc++", "-x", "c++"}} {
		exe := compile(t, args[0], append(args[1:], source)...)
		assert.Equal(t, result{}, start(t, 1, nil, exe), args)
	}
}

// names returns the prototypes of the headers' functions, as the list in testdata has them. That
// these are all, package generate tests.
func names(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../cmd/libsma/testdata/openshmem-1.6.txt")
	require.NoError(t, err)
	header, err := os.ReadFile("../../cmd/libsma/include/shmem.h")
	require.NoError(t, err)
	types := map[string][][2]string{"-": {{"", ""}}}
	for _, bits := range []string{"8", "16", "32", "64", "128"} {
		types["size"] = append(types["size"], [2]string{bits, ""})
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		switch {
		case len(f) < 3 || f[0] == "#":
		case f[0] == "type":
			name, c, _ := strings.Cut(f[2], " ")
			types[f[1]] = append(types[f[1]], [2]string{name, c})
		default:
			for _, v := range types[f[1]] {
				p := strings.NewReplacer("TYPENAME", v[0], "SIZE", v[0], "TYPE", v[1]).Replace(f[2])
				name, _, _ := strings.Cut(p, "(")
				if bytes.Contains(header, []byte(name+"(")) {
					all = append(all, p)
				}
			}
		}
	}
	require.Len(t, all, 1685+103+96)
	return all
}

func TestMistakesAreOneLineAndEndTheJob(t *testing.T) {
	exe := compile(t, "oshcc", "../../cmd/libsma/testdata/programs/mistakes.c")
	for what, want := range map[string]struct {
		status int
		line   string // "": none of the library
	}{
		"early":      {1, "libsma: shmem_barrier_all: call shmem_init first"},
		"late":       {1, "shmem_barrier_all: the library is closed by shmem_finalize"},
		"pe":         {1, "libsma: PE 0: shmem_long_p: there is no PE 2, of 2"},
		"address":    {1, "is not symmetric"},
		"size":       {1, "libsma: PE 0: shmem_putmem: 1125899906842624 bytes at"},
		"context":    {1, "libsma: PE 0: shmem_ctx_long_p: the context is not open"},
		"free":       {1, "libsma: PE 0: shmem_free: no object begins at this address"},
		"comparison": {1, "libsma: PE 0: shmem_long_wait_until: comparison 77"},
		"stride":     {1, "libsma: PE 0: shmem_long_iput: a stride of 0 elements"},
		"lock":       {1, "libsma: PE 0: shmem_clear_lock: PE 0 clears a lock that it does not have"},
		"team":       {1, "shmem_long_sum_reduce: there is no team with handle 77"},
		"exit":       {7, "libsma: PE 0: exit: status 7 before shmem_finalize"},
		"global":     {9, ""},
		"abort":      {134, "shmemrun: PE 0 of 2 was killed by signal 6"},
		"kill":       {137, "shmemrun: PE 0 of 2 was killed by signal 9"},
		"threads":    {0, ""},
	} {
		if what == "threads" && runtime.GOARCH != "amd64" {
			continue
		}
		r := start(t, 2, nil, "--grace", "1m", exe, what)
		assert.Equal(t, want.status, r.status, "%s: %s", what, r.errors)
		assert.Contains(t, r.errors, want.line, what)
		if what == "abort" || what == "kill" {
			assert.Regexp(t, "(?m)^libsma: PE 1: \\w+: PE 0 has ended: ", r.errors, what)
		}
		if what != "early" && what != "abort" {
			assert.Contains(t, r.out, "printed before", what)
		}
		if want.line == "" {
			assert.NotContains(t, r.errors, "libsma: ", what)
		}
	}
	assert.Zero(t, start(t, 2, nil, exe).status, "main ends without shmem_finalize")
}

func TestTheCompilers(t *testing.T) {
	dir := installed(t)
	for _, name := range []string{"oshcc", "oshc++"} {
		path := filepath.Join(dir, "bin", name)
		r := run(t, nil, path, "--version")
		assert.Zero(t, r.status)
		assert.Contains(t, r.out, name)
		r = run(t, nil, path, "-show", "x.c")
		assert.Contains(t, r.out, " -I"+dir+"/include x.c -L"+dir+"/lib -Wl,-rpath,"+dir+"/lib -lsma")
		r = run(t, nil, path, "-static", "x.c")
		assert.Equal(t, result{1, "", name + ": -static: the library is shared only: link without -static\n"}, r)
	}
	assert.FileExists(t, filepath.Join(dir, "lib/pkgconfig/libsma.pc"))
}
