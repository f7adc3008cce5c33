//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runProgram runs a program, behind variables of its environment. It returns how it ended, and what it printed.
func runProgram(w []string) (string, error) {
	program := slices.IndexFunc(w, func(word string) bool { return !strings.Contains(word, "=") })
	c := exec.Command(w[program], w[program+1:]...)
	c.Env = append(os.Environ(), w[:program]...)
	out, _ := c.CombinedOutput()
	if c.ProcessState == nil {
		return "", fmt.Errorf("%s did not run: %s", w[program], out)
	}
	return fmt.Sprintf("%v\n%s", c.ProcessState, out), nil
}

// linked are the lines of ldd that have the path of a library.
var linked = regexp.MustCompile(`(/\S+) \(0x`)

// programsInC are programs in C, by their names in a machine, and the libraries that they need.
func programsInC(t *testing.T, sources map[string]string) map[string]string {
	t.Helper()
	dir, files := t.TempDir(), map[string]string{"bin/sh": "/bin/sh"} // the shell of a program's system
	output := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s %q: %s", name, args, out)
		return string(out)
	}
	output("../cmd/libsma/install", dir)
	for name, pattern := range sources {
		found, err := filepath.Glob("../cmd/libsma/testdata/" + pattern)
		require.NoError(t, err)
		files[name] = filepath.Join(dir, name)
		output(filepath.Join(dir, "bin", "oshcc"), append(found, "-O1", "-o", files[name])...)
		for _, m := range linked.FindAllStringSubmatch(output("ldd", files[name]), -1) {
			to := "lib/" + path.Base(m[1])
			if strings.HasPrefix(path.Base(to), "ld-") {
				to = strings.TrimPrefix(m[1], "/") // the program says where it is
			}
			files[to] = m[1]
		}
	}
	return files
}

// logged are the lines that the transport logs.
var logged = regexp.MustCompile(`(?m)^\d{4}/\d\d/\d\d .*\n`)

// Six programs in C have a PE in each of two machines. However a PE ends, the other one does so too.
func TestVMProgramsInC(t *testing.T) {
	wantMatrix(t)
	s := needVM(t, programsInC(t, map[string]string{
		"hello": "programs/hello.c", "chapters": "chapters/*.c", "generic": "programs/generic.c", "mistakes": "programs/mistakes.c",
	}))
	memory := memory(t)
	var machines [2]*vm
	for i := range machines {
		s.variables = []string{"SDP_FABRIC=" + lineSpec(t, i+1, function(0)), "SHMEM_NPES=2", fmt.Sprint("SHMEM_PE=", i)}
		machines[i] = s.startVM(t, []string{memory}, "operator")
	}
	for _, v := range machines {
		v.ready()
	}
	for i, c := range []struct {
		program string
		want    [2]string // by PE
	}{
		{"/hello", [2]string{"^exit status 0\n2 PEs, sum 3\n$", "^exit status 0\n$"}},
		{"/generic", [2]string{"^exit status 0\npassed\n$", "^exit status 0\n$"}},
		{"/mistakes kill", [2]string{"^signal: killed\nprinted before\n$", "^exit status 1\nlibsma: PE 1: \\w+: PE 0 has ended: "}},
		{"/mistakes exit", [2]string{"^exit status 7\nprinted before\nlibsma: PE 0: exit: status 7 before shmem_finalize", "^exit status 7\n"}},
		{"/mistakes global", [2]string{"^exit status 9\nprinted before\n$", "^exit status 9\n"}},
		{"/chapters", [2]string{"^exit status 0\npassed\n$", "^exit status 0\n$"}},
	} {
		start := time.Now()
		command := fmt.Sprintf("run SHMEM_JOB=%d %s", i, c.program)
		for _, v := range machines {
			_, err := fmt.Fprintln(v.in, command)
			require.NoError(t, err)
		}
		var ended [2]string
		for pe, v := range machines {
			var got report
			require.NoError(t, json.Unmarshal([]byte(v.readLine()), &got))
			t.Logf("%s: PE %d: %+q (%v by the host's clock)", c.program, pe, got, time.Since(start).Round(time.Millisecond))
			ended[pe] = logged.ReplaceAllString(got.Value, "")
		}
		for pe := range ended {
			require.Regexp(t, c.want[pe], ended[pe], c.program)
		}
	}
	for _, v := range machines {
		v.end()
	}
}
