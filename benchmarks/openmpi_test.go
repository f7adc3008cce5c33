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

// startOpenMPI starts oshmem/perf.c.
func startOpenMPI(b *testing.B, pes int) *process {
	p, err := openMPI(b).start(pes)
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

// cProgram is oshmem/perf.c, built for a library, and the command that starts its PEs.
type cProgram struct {
	launcher, program string
	args              func(pes int) []string
}

// buildC builds oshmem/perf.c by a compiler for OpenSHMEM.
func buildC(b *testing.B, compiler string) string {
	program := filepath.Join(b.TempDir(), "perf")
	if out, err := exec.Command(compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-o", program, "oshmem/perf.c").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return program
}

func openMPI(b *testing.B) cProgram {
	for _, tool := range []string{"oshcc", "oshrun"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(b, tool+" of Open MPI")
		}
	}
	return cProgram{"oshrun", buildC(b, "oshcc"), func(pes int) []string {
		// Open MPI's memory hooks make it crash at the end.
		args := []string{"-n", strconv.Itoa(pes), "--mca", "memory", "^patcher"}
		if os.Getuid() == 0 {
			args = append(args, "--allow-run-as-root")
		}
		if pes > runtime.NumCPU() {
			args = append(args, "--oversubscribe")
		}
		return args
	}}
}

// ours is the program built for libsma, which is installed in a directory of the benchmark's.
func ours(b *testing.B) cProgram {
	dir := b.TempDir()
	for _, command := range [][]string{{"cmd/libsma/install", dir}, {"go", "build", "-o", dir + "/bin/", "./cmd/shmemrun"}} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	return cProgram{dir + "/bin/shmemrun", buildC(b, dir+"/bin/oshcc"), func(pes int) []string {
		return []string{"-n", strconv.Itoa(pes)}
	}}
}

// start starts the PEs. PE 0 reads what to do from the standard input, and all end when that does.
func (c cProgram) start(pes int) (*process, error) {
	cmd := exec.Command(c.launcher, append(c.args(pes), c.program)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return startCommand(cmd)
}

// BenchmarkOpenSHMEM measures one program in C by two libraries: libsma and Open MPI's. An operation of
// the benchmark is a round, in which the PEs of each run alone. Figures are medians of the rounds;
// those of openmpi/libsma say how many times less libsma takes.
func BenchmarkOpenSHMEM(b *testing.B) {
	programs := map[string]cProgram{"libsma": ours(b), "openmpi": openMPI(b)}
	items := map[int][]string{
		2: {"put", "static", "putquiet", "get", "fetchadd", "contended", "oneway", "barrier", "broadcast", "reduce", "alltoall", "fcollect", "put1m", "get1m"},
		4: {"barrier4", "reduce", "alltoall", "fcollect"},
	}
	for _, pes := range []int{2, 4} {
		b.Run(fmt.Sprintf("pes=%d", pes), func(b *testing.B) {
			ns := map[string][]float64{} // of an item by a library
			measure(b, []string{"libsma", "openmpi"}, func(lib string) float64 {
				p, err := programs[lib].start(pes)
				for _, item := range items[pes] {
					if err != nil {
						break
					}
					var one float64
					one, err = p.rate(item)
					ns[item+"-"+lib] = append(ns[item+"-"+lib], one)
				}
				if err == nil {
					err = p.end()
				}
				if err != nil {
					b.Fatalf("%s: %v", lib, err)
				}
				return 0
			})
			for _, item := range items[pes] {
				libsma, openmpi := median(ns[item+"-libsma"]), median(ns[item+"-openmpi"])
				b.ReportMetric(libsma, item+"-ns")
				b.ReportMetric(openmpi/libsma, item+"-openmpi/libsma")
			}
		})
	}
}

// rate returns how many ns an item takes, when it goes on for 20 ms.
func (p *process) rate(item string) (ns float64, err error) {
	for n, next := 0, 10; n < next; {
		n = next
		if _, err = fmt.Fprintln(p.stdin, item, n); err != nil {
			return 0, err
		}
		line, err := p.line()
		if err != nil {
			return 0, err
		}
		if ns, err = strconv.ParseFloat(line, 64); err != nil {
			return 0, err
		}
		next = min(int(2e7/ns), 1000*n)
	}
	return ns, nil
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
