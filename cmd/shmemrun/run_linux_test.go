package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/shmem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If this variable is set, the test binary is shmemrun. The PE that it starts is
// the test binary with the first argument "pe".
const envMain = "SHMEMRUN_TEST_MAIN"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "pe":
		os.Exit(bePE(os.Getenv("SHMEM_PE"), os.Args[2], os.Args[3:]))
	case os.Getenv(envMain) != "":
		main()
	}
	os.Exit(m.Run())
}

// bePE runs as a PE. It does what, and returns the exit status.
func bePE(pe, what string, args []string) int {
	signals := make(chan os.Signal, 16)
	switch what {
	case "env":
		fmt.Println(pe, os.Getenv("SHMEM_NPES"), os.Getenv("SHMEM_JOB"), os.Getenv("SDP_FABRIC"))
	case "attach": // attaches to the fabric, and prints where that is
		spec, err := spec.Parse(os.Getenv("SDP_FABRIC"))
		if err != nil {
			fmt.Println(err)
			return 1
		}
		dir, err := hostdir.Open(hostdir.In(hostdir.Find(spec.Name), spec.Name), true)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(dir.Path())
	case "join": // PE 0 joins the job or not, and ends. The others wait until they are told to end.
		signal.Notify(signals, syscall.SIGTERM)
		if pe == "0" && args[0] == "not" {
			return 0
		}
		w, err := shmem.Open(context.Background())
		if err != nil {
			fmt.Println(err)
			return 1
		}
		// A PE that learns of a failure within Open does not join.
		err = w.Team().Barrier(context.Background())
		if pe == "0" {
			if err != nil {
				fmt.Println(err)
			}
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		<-signals
		fmt.Println(w.Err() != nil)
	case "mates": // prints which PEs' memory it has mapped, after each has written to all
		ctx := context.Background()
		w, err := shmem.Open(ctx)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		s, err := shmem.AllocZeroed[int64](ctx, w, w.NumPEs())
		if err != nil {
			fmt.Println(err)
			return 1
		}
		var mapped []int
		for to := range w.NumPEs() {
			shmem.P(w.Ctx(), s, w.PE(), int64(w.PE()+1), to)
			if _, ok := s.Ptr(to); ok {
				mapped = append(mapped, to)
			}
		}
		if err := w.Team().Barrier(ctx); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(pe, mapped, s.Local())
		if err := w.Close(ctx); err != nil {
			fmt.Println(err)
			return 1
		}
	case "cat":
		b, err := io.ReadAll(os.Stdin)
		fmt.Printf("%s %s %v\n", pe, b, err)
	case "end": // one PE ends in some way, and the others wait
		signal.Notify(signals, syscall.SIGTERM)
		if pe == args[0] {
			n, _ := strconv.Atoi(args[2])
			if args[1] == "exit" {
				return n
			}
			syscall.Kill(os.Getpid(), syscall.Signal(n))
		}
		fmt.Println(pe, <-signals)
	case "stubborn": // PE 0 fails while the other one ignores TERM
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		if pe == "0" {
			os.Stdin.Read(make([]byte, 1))
			return 5
		}
		fmt.Println("deaf")
		select {}
	case "signals": // prints each signal, and ends with TERM
		signal.Notify(signals)
		fmt.Println(pe, "ready")
		for s := range signals {
			if s != syscall.SIGURG && s != syscall.SIGCONT {
				fmt.Println(pe, s)
			}
			if s == syscall.SIGTERM {
				return 0
			}
		}
	case "lines": // prints pieces of lines to both outputs
		for i := range 200 {
			fmt.Print(pe)
			fmt.Printf("-%d-%s\n", i, strings.Repeat(pe, 300))
			fmt.Fprint(os.Stderr, pe)
			fmt.Fprintf(os.Stderr, "+%d+%s\n", i, strings.Repeat(pe, 300))
		}
		fmt.Print("no end ", pe)
	}
	return 0
}

// start starts shmemrun with flags. Each PE does what.
func start(t *testing.T, flags string, what ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	args := append(strings.Fields(flags), exe, "pe")
	return command(t, append(args, what...)...)
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Env = append(os.Environ(), envMain+"=1", "SDP_FABRIC=",
		"GORACE=atexit_sleep_ms=0") // otherwise each PE ends a second late
	return cmd
}

// result runs cmd to its end.
func result(t *testing.T, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func sortedLines(s string) []string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	slices.Sort(lines)
	return lines
}

func TestEachPELearnsWhoItIs(t *testing.T) {
	jobs := map[string]bool{}
	for _, c := range []struct{ flags, fabric string }{
		{"-n 3", "shm:shmem-JOB"},
		{"-n 3 --fabric-options spin=0", "shm:shmem-JOB?spin=0"},
		{"--hosts 3", "ring:shmem-JOB?node=NODE&nodes=3"},
		{"--hosts 3 -n 3 --topology mesh --fabric-options lanes=2", "mesh:shmem-JOB?node=NODE&nodes=3&lanes=2"},
		{"--hosts 2 -n 3 --fabric-options lanes=2", "ring:shmem-JOB?node=NODES&nodes=2&share=1&lanes=2"},
	} {
		status, out, errs := result(t, start(t, c.flags, "env"))
		assert.Equal(t, 0, status)
		assert.Empty(t, errs)
		lines := sortedLines(out)
		require.Len(t, lines, 3, out)
		job := strings.Fields(lines[0])[2]
		for pe, line := range lines {
			fabric := strings.NewReplacer("JOB", job, "NODES", strconv.Itoa(pe/2+1), "NODE", strconv.Itoa(pe+1)).Replace(c.fabric)
			assert.Equal(t, fmt.Sprintf("%d 3 %s %s", pe, job, fabric), line)
		}
		assert.False(t, jobs[job], "two jobs with one name")
		jobs[job] = true
	}
}

// PEs map the heaps of their own node and of its neighbours, and reach the others by requests.
func TestSeveralPEsOfANode(t *testing.T) {
	for flags, mates := range map[string][]string{
		"-n 6 --hosts 3 --topology line":               {"[0 1 2 3]", "[0 1 2 3]", "[0 1 2 3 4 5]", "[0 1 2 3 4 5]", "[2 3 4 5]", "[2 3 4 5]"},
		"-n 6 --hosts 3 --map-by node --topology line": {"[0 1 3 4]", "[0 1 2 3 4 5]", "[1 2 4 5]", "[0 1 3 4]", "[0 1 2 3 4 5]", "[1 2 4 5]"},
		"-f testdata/hosts --topology line":            {"[0 1 2 3]", "[0 1 2 3]", "[0 1 2 3 4]", "[0 1 2 3]", "[2 4]"},
		"-n 4 --hosts 2 --fabric-options spin=0":       {"[0 1 2 3]", "[0 1 2 3]", "[0 1 2 3]", "[0 1 2 3]"},
	} {
		status, out, errs := result(t, start(t, flags, "mates"))
		assert.Equal(t, 0, status, "%s: %s", flags, errs)
		assert.Empty(t, errs)
		var want []string
		for pe := range mates {
			want = append(want, fmt.Sprintf("%d %s %v", pe, mates[pe], []int{1, 2, 3, 4, 5, 6}[:len(mates)]))
		}
		assert.Equal(t, want, sortedLines(out), flags)
	}
}

// A host file has the meaning that it has for mpiexec.hydra, whose PEs it starts here without another host.
func TestHostFilesAsHydraReadsThem(t *testing.T) {
	if _, err := exec.LookPath("mpiexec.hydra"); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	for _, n := range []string{"5", "7", "12"} {
		dir := t.TempDir()
		// The launcher fails if a process ends before all have been started.
		cmd := exec.CommandContext(t.Context(), "mpiexec.hydra", "-launcher", "fork", "-f", "testdata/hosts", "-n", n, "sh", "-c",
			`echo $PMI_RANK $MPIR_CVAR_CH3_INTERFACE_HOSTNAME; : >"$0/$PMI_RANK"; while [ -d "$0" ] && [ ! -e "$0/all" ]; do sleep 0.01; done`, dir)
		var out bytes.Buffer
		cmd.Stdout = &out
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			started, err := os.ReadDir(dir)
			return err == nil && fmt.Sprint(len(started)) == n
		}, 30*time.Second, 5*time.Millisecond)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "all"), nil, 0o600))
		require.NoError(t, cmd.Wait())
		o, err := parseOptions([]string{"-f", "testdata/hosts", "-n", n, "prog"}, nil)
		require.NoError(t, err)
		var want []string
		for pe, host := range o.at {
			want = append(want, fmt.Sprintf("%d %c", pe, "abc"[host]))
		}
		slices.Sort(want)
		assert.Equal(t, want, sortedLines(out.String()))
	}
}

func TestAFabricThatIsGivenStays(t *testing.T) {
	cmd := start(t, "-n 1", "env")
	cmd.Env = append(cmd.Env, "SDP_FABRIC=shm:lab?spin=0")
	_, out, _ := result(t, cmd)
	assert.Contains(t, out, " shm:lab?spin=0\n")
}

// A fabric that no PE could open is refused before any PE starts.
func TestAFabricThatIsNoneStartsNothing(t *testing.T) {
	for _, c := range []struct{ flags, fabric, says string }{
		{"-n 2", "nonsense", `SDP_FABRIC: fabric "nonsense": want shm:NAME, `},
		{"-n 1", "shm:x?hops=2", `SDP_FABRIC: fabric "shm:x?hops=2": option hops=2: `},
		{"-n 2", "mem:x", "SDP_FABRIC: mem:x is memory of one process, and each PE is a process"},
	} {
		cmd := start(t, c.flags, "env")
		cmd.Env = append(cmd.Env, "SDP_FABRIC="+c.fabric)
		status, out, errs := result(t, cmd)
		assert.Equal(t, statusUsage, status, c.fabric)
		assert.Empty(t, out, "no PE was started")
		assert.True(t, strings.HasPrefix(errs, "shmemrun: "+c.says), errs)
		assert.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
}

func TestOnlyPE0HasTheInput(t *testing.T) {
	for _, flags := range []string{"-n 3", "-n 3 -l"} {
		cmd := start(t, flags, "cat")
		cmd.Stdin = strings.NewReader("hello")
		status, out, _ := result(t, cmd)
		assert.Equal(t, 0, status)
		if strings.Contains(flags, "-l") {
			assert.Equal(t, []string{"[0] 0 hello <nil>", "[1] 1  <nil>", "[2] 2  <nil>"}, sortedLines(out))
		} else {
			assert.Equal(t, []string{"0 hello <nil>", "1  <nil>", "2  <nil>"}, sortedLines(out))
		}
	}
}

func TestLinesWithAPrefixStayWhole(t *testing.T) {
	cmd := start(t, "-n 4 --prefix", "lines")
	var both bytes.Buffer // one pipe for both outputs, as on a terminal
	cmd.Stdout, cmd.Stderr = &both, &both
	require.NoError(t, cmd.Run())
	var want []string
	for pe := range 4 {
		for i := range 200 {
			for _, sep := range "-+" {
				want = append(want, fmt.Sprintf("[%[1]d] %[1]d%[2]c%[3]d%[2]c%[4]s", pe, sep, i, strings.Repeat(strconv.Itoa(pe), 300)))
			}
		}
		want = append(want, fmt.Sprintf("[%d] no end %[1]d", pe))
	}
	slices.Sort(want)
	assert.Equal(t, want, sortedLines(both.String()))
}

// Each output that is lost has one line, and the job fails.
func TestOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	cmd := start(t, "-n 2 --prefix", "env")
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &errs
	require.Error(t, cmd.Run())
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Equal(t, "shmemrun: write /dev/stdout: no space left on device\n", errs.String())
}

// A reader that has what it wants, such as head, is no failure.
func TestNobodyReadsTheOutput(t *testing.T) {
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer writer.Close()
	cmd := start(t, "-n 2 --prefix", "env")
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = writer, &errs
	require.NoError(t, cmd.Run())
	assert.Empty(t, errs.String())
}

func TestOneFailureEndsTheOthers(t *testing.T) {
	for _, c := range []struct {
		how    []string
		status int
		says   string
	}{
		{[]string{"exit", "3"}, 3, "PE 1 of 3 exited with status 3"},
		{[]string{"exit", "255"}, 255, "PE 1 of 3 exited with status 255"},
		{[]string{"kill", "9"}, 128 + 9, "PE 1 of 3 was killed by signal 9 (killed)"},
	} {
		// A PE that gets the TERM before it catches it prints nothing.
		status, out, errs := result(t, start(t, "-n 3", append([]string{"end", "1"}, c.how...)...))
		assert.Equal(t, c.status, status)
		assert.Equal(t, "shmemrun: "+c.says+"\n", errs)
		for line := range strings.Lines(out) {
			assert.Regexp(t, "^[02] terminated\n$", line)
		}
	}
}

func TestAnEndBeforeJoiningEndsTheJob(t *testing.T) {
	status, out, errs := result(t, start(t, "-n 3", "join", "not"))
	assert.Equal(t, 1, status)
	assert.Equal(t, "shmemrun: PE 0 of 3 exited with status 0 before it joined the job\n", errs)
	assert.Empty(t, out)
}

// What a program writes to the pipe for reports, which it did not open, neither ends nor holds up the job.
func TestAProgramWritesToTheReports(t *testing.T) {
	status, out, errs := result(t, command(t, "-n", "2", "--timeout", "1m", "sh", "-c", `printf 'hello\000\000e\000\001e' >&3; echo $SHMEM_PE`))
	assert.Equal(t, 0, status, errs)
	assert.Equal(t, []string{"0", "1"}, sortedLines(out))
}

func TestPEsNoticeAFailureBeforeTheyAreEnded(t *testing.T) {
	status, out, errs := result(t, start(t, "-n 3 --grace 1m", "join", "all"))
	assert.Equal(t, 128+9, status)
	assert.Equal(t, "shmemrun: PE 0 of 3 was killed by signal 9 (killed)\n", errs)
	assert.Equal(t, "true\ntrue\n", out)
}

// A PE that fails because another one has ended may be seen to end first. The other one is named.
func TestThePEThatFailedFirstIsNamed(t *testing.T) {
	for _, c := range []struct {
		end    string
		status int
		says   string
	}{
		{"kill -9 $$", 128 + 9, "PE 0 of 2 was killed by signal 9 (killed)"},
		{"exit 4", 4, "PE 0 of 2 exited with status 4"},
		{"exit 0", 1, "PE 1 of 2 exited with status 1"},
	} {
		status, _, errs := result(t, command(t, "-n", "2", "--grace", "1m", "sh", "-c",
			`if [ $SHMEM_PE = 1 ]; then printf '\000\000d' >&3; exit 1; fi; sleep 0.2; `+c.end))
		assert.Equal(t, c.status, status, c.end)
		assert.Equal(t, "shmemrun: "+c.says+"\n", errs)
	}
	status, _, errs := result(t, command(t, "-n", "2", "--grace", "10ms", "sh", "-c",
		`if [ $SHMEM_PE = 1 ]; then printf '\000\000d' >&3; exit 1; fi; exec sleep 1000`))
	assert.Equal(t, 1, status, "a PE that lives is not waited for")
	assert.Equal(t, "shmemrun: PE 1 of 2 exited with status 1\n", errs)
}

func TestEachProgramHasItsPEs(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho $SHMEM_PE of $SHMEM_NPES: $COLOUR $1 $(pwd -P)\n"), 0o755))
	real, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	status, out, errs := result(t, command(t, "-np", "1", "-x", "COLOUR=red", "-wdir", dir, "./script", "a", ":", "-n", "2", "-x", "COLOUR", "-wdir", "/", script, "b"))
	assert.Equal(t, 0, status, errs)
	assert.Equal(t, []string{"0 of 3: red a " + real, "1 of 3: b /", "2 of 3: b /"}, sortedLines(out))
}

// A PE's directory is in PWD too, by which shells and compilers go.
func TestTheDirectoryOfAPE(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	cmd := command(t, "-n", "1", "--wdir", "d", "printenv", "PWD")
	cmd.Dir = dir
	status, out, errs := result(t, cmd)
	assert.Equal(t, 0, status, errs)
	assert.Equal(t, dir+"/d\n", out)
	status, out, errs = result(t, command(t, "-n", "1", "--wdir", dir+"/none", "/bin/true"))
	assert.Equal(t, statusNotFound, status)
	assert.Empty(t, out)
	assert.Equal(t, "shmemrun: --wdir "+dir+"/none: no such file or directory\n", errs)
}

func TestOutputToFiles(t *testing.T) {
	dir := t.TempDir()
	status, _, errs := result(t, command(t, "--output-filename", "main_test.go", "true"))
	assert.Equal(t, 2, status)
	assert.Equal(t, "shmemrun: --output-filename: mkdir main_test.go: not a directory\n", errs)
	status, _, _ = result(t, command(t, "--output-filename", dir+"/made", "no-such-program"))
	assert.Equal(t, 127, status)
	assert.NoDirExists(t, dir+"/made")
	var out string
	status, out, errs = result(t, command(t, "-n", "11", "--output-filename", dir, "sh", "-c", "echo out $SHMEM_PE; echo err $SHMEM_PE >&2"))
	assert.Equal(t, 0, status)
	assert.Empty(t, out+errs)
	for pe := range 11 {
		for name, want := range map[string]string{"stdout": "out", "stderr": "err"} {
			b, err := os.ReadFile(filepath.Join(dir, "1", fmt.Sprintf("rank.%02d", pe), name))
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("%s %d\n", want, pe), string(b))
		}
	}
}

func TestWhoDoesNotHearTermIsKilled(t *testing.T) {
	cmd := start(t, "-n 2 --grace 100ms", "stubborn")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "deaf\n", line)
	require.NoError(t, in.Close())
	cmd.Wait()
	assert.Equal(t, 5, cmd.ProcessState.ExitCode())
}

func TestTheJobEndsAfterItsTimeout(t *testing.T) {
	status, _, errs := result(t, start(t, "-n 2 --timeout 100ms", "end", "none"))
	assert.Equal(t, statusTimeout, status)
	assert.Equal(t, "shmemrun: the job has not ended after 100ms\n", errs)
}

func TestAProgramThatCannotBeStarted(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no program\n"), 0o644))
	garbage := filepath.Join(dir, "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("no program\n"), 0o755))
	for _, c := range []struct {
		program string
		want    int
	}{
		{"no-such-program-anywhere", 127},
		{filepath.Join(dir, "none"), 127},
		{text, 126},
		{dir, 126},
		{garbage, 126},
	} {
		status, out, errs := result(t, command(t, "-n", "3", c.program))
		assert.Equal(t, c.want, status, c.program)
		assert.Empty(t, out)
		assert.Equal(t, 1, strings.Count(errs, "\n"), errs)
		assert.Contains(t, errs, c.program)
	}
}

// listen starts a job of PEs that print their signals, and returns their lines when
// all are ready.
func listen(t *testing.T, cmd *exec.Cmd, n int) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	expect(t, lines, n, "ready")
	return lines
}

// expect reads a line of each of n PEs.
func expect(t *testing.T, lines *bufio.Scanner, n int, what string) {
	t.Helper()
	var got, want []string
	for pe := range n {
		require.True(t, lines.Scan(), "%v", got)
		got = append(got, lines.Text())
		want = append(want, fmt.Sprint(pe, " ", what))
	}
	slices.Sort(got)
	require.Equal(t, want, got)
}

func TestSignalsArePassedOnToAll(t *testing.T) {
	cmd := start(t, "-n 3", "signals")
	lines := listen(t, cmd, 3)
	for _, s := range []syscall.Signal{
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP, syscall.SIGWINCH, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGUSR1,
	} {
		require.NoError(t, cmd.Process.Signal(s))
		expect(t, lines, 3, s.String())
	}
	// The second of INT and TERM ends the job. A PE that catches it may still end
	// with status 0.
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	expect(t, lines, 3, "terminated")
	cmd.Wait()
	assert.Equal(t, 128+15, cmd.ProcessState.ExitCode())
}

func TestPEsThatCatchTermEndWell(t *testing.T) {
	cmd := start(t, "-n 2", "signals")
	lines := listen(t, cmd, 2)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	expect(t, lines, 2, "terminated")
	assert.NoError(t, cmd.Wait())
}

func TestWhatAPEHasStartedEndsToo(t *testing.T) {
	// The shell ends at once. The sleep would not end by itself.
	cmd := command(t, "-n", "2", "sh", "-c", `sleep 1000 & if [ "$SHMEM_PE" = 1 ]; then exit 4; fi; wait`)
	status, _, _ := result(t, cmd) // waits until no process holds the pipes
	assert.Equal(t, 4, status)
}
