package benchmarks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// startOpenMPI builds oshmem/perf.c and starts it. It reads what PE 0 does from its standard
// input, and ends when that ends.
func startOpenMPI(b *testing.B, pes int) *process {
	for _, tool := range []string{"oshcc", "oshrun"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(b, tool+" of Open MPI")
		}
	}
	program := filepath.Join(b.TempDir(), "perf")
	if out, err := exec.Command("oshcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "oshmem/perf.c").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	// Open MPI's memory hooks make it crash at the end.
	args := []string{"-n", strconv.Itoa(pes), "--mca", "memory", "^patcher"}
	if os.Getuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	if pes > runtime.NumCPU() {
		args = append(args, "--oversubscribe")
	}
	cmd := exec.Command("oshrun", append(args, program)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	p, err := startCommand(cmd)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.end(); err != nil {
			b.Errorf("oshrun: %v", err)
		}
	})
	return p
}

// leadOpenMPI measures an operation. The program reads the clock.
func leadOpenMPI(b *testing.B, p *process, o operation) {
	if _, err := fmt.Fprintln(p.stdin, o.name, b.N); err != nil {
		b.Fatal(err)
	}
	line, err := p.line()
	if err != nil {
		b.Fatal(err)
	}
	ns, err := strconv.ParseFloat(line, 64)
	if err != nil {
		b.Fatal(line)
	}
	report(b, o, ns)
}
