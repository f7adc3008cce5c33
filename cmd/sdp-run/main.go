//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

const usageHead = `sdp-run runs a program whose TCP connections inside this machine carry their
bytes by SDP, where both ends were started so. The program is not changed.

Usage: sdp-run [FLAGS] PROGRAM [ARGUMENTS...]

Examples:
  sdp-run -- redis-server --port 7000 &
  sdp-run -- redis-benchmark -p 7000
  sdp-run --log connections iperf3 -c localhost   # says what goes by SDP

Flags, before PROGRAM:
`

const usageTail = `
The file of rules has a rule a line; # begins a comment. The first rule that is
for a connection counts. Without one, SDP is used where both ends can.

  WAY  END      PROGRAM  ADDRESS       PORTS
  tcp  both     *        *             22
  sdp  connect  redis-*  127.0.0.0/8   6379
  tcp  accept   nginx    *             8000-8999

WAY is sdp or tcp. END is connect, accept or both. PROGRAM is the name of the
program, as in a shell's pattern. ADDRESS, which may have a length in bits, and
PORTS are those of the server.

SDP_FABRIC names the fabric, as for all programs. Programs that this one
starts are run in the same way.

Exit status: that of PROGRAM; 2 if the command line, a rule or SDP_FABRIC is
wrong, 126 if PROGRAM cannot be run, 127 if it is not found.
`

// Exit statuses of sdp-run itself.
const (
	statusUsage    = 2
	statusCannot   = 126
	statusNotFound = 127
)

const library = "libsdp-run.so"

// levels are what --log says, by the library's numbers.
var levels = []string{"nothing", "problems", "connections"}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run becomes the program, or returns an exit status.
func run(args []string, stdout, stderr io.Writer) int {
	logger := log.New(stderr, "sdp-run: ", log.Lmsgprefix)
	env, args, err := prepare(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err != nil {
		logger.Printf("%v (sdp-run --help tells more)", err)
		return statusUsage
	}
	path, err := exec.LookPath(args[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		logger.Print(err)
		return statusNotFound
	case err == nil:
		if why := refuses(path); why != "" {
			logger.Printf("%s is %s: the library is not loaded, and its connections stay TCP", args[0], why)
		}
		err = unix.Exec(path, args, env)
	}
	logger.Printf("%s: %v", args[0], err)
	return statusCannot
}

// prepare returns the environment of the program, and the program with its arguments.
func prepare(args []string, stdout io.Writer) (env, program []string, err error) {
	flag := flags.New("sdp-run", stdout, usageHead, usageTail)
	flag.SetInterspersed(false)
	rules := flag.String("rules", "", "`FILE` of rules: what goes by SDP, and what by TCP")
	level := flag.String("log", "problems", "`LEVEL` of messages: nothing, problems or connections")
	smallest := flags.Size(16 << 10)
	flag.Var(&smallest, "smallest", "go by SDP from so many bytes on, written at once or unread; less goes by TCP")
	file := flag.String("log-file", "", "append messages to `FILE` (default: the program's standard error)")
	dir := flag.String("library", "", "`DIR` of "+library+" and libsdp.so (default: beside this command, as installed)")
	if err = flags.Parse(flag, args, stdout); err != nil {
		return nil, nil, err
	}
	number := slices.Index(levels, *level)
	switch {
	case number < 0:
		return nil, nil, fmt.Errorf("--log %q: want nothing, problems or connections", *level)
	case smallest > math.MaxUint32:
		return nil, nil, fmt.Errorf("--smallest %v: want less than 4G", &smallest)
	case flag.NArg() == 0:
		return nil, nil, errors.New("nothing to run: give a program, as in sdp-run redis-server")
	}
	text, from, err := spec.Default()
	if err == nil {
		err = check(text, from)
	}
	if err != nil {
		return nil, nil, err
	}
	at, err := find(*dir)
	if err != nil {
		return nil, nil, err
	}
	set := map[string]string{
		"LD_PRELOAD":       strings.TrimSuffix(at+":"+os.Getenv("LD_PRELOAD"), ":"),
		"SDP_RUN_LOG":      fmt.Sprint(number),
		"SDP_RUN_SMALLEST": fmt.Sprint(int64(smallest)),
		// SIGURG stays the program's.
		"GODEBUG": strings.TrimPrefix(os.Getenv("GODEBUG")+",asyncpreemptoff=1", ","),
	}
	if *rules != "" {
		if set["SDP_RUN_RULES"], err = readRules(*rules); err != nil {
			return nil, nil, err
		}
	}
	if *file != "" {
		f, err := os.OpenFile(*file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666) // as the library does
		if err != nil {
			return nil, nil, fmt.Errorf("--log-file: %w", err)
		}
		f.Close()
		if set["SDP_RUN_LOG_FILE"], err = filepath.Abs(*file); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); set[name] == "" {
			env = append(env, v)
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env, flag.Args(), nil
}

// check checks the fabric that its environment or a file gives the program. Where its bridge is not there, the library
// says so, and connections stay TCP.
func check(fabric, from string) error {
	m, err := spec.Parse(fabric)
	switch {
	case err == nil && m.InProcess():
		return fmt.Errorf("%s: %s is memory of one process, where programs do not meet", from, fabric)
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// find returns the path of the library.
func find(dir string) (string, error) {
	dirs := []string{dir}
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		if self, err = filepath.EvalSymlinks(self); err != nil {
			return "", err
		}
		bin := filepath.Dir(self)
		// Installed by cmd/libsdp/install, by the Debian package, from an archive.
		dirs = []string{filepath.Join(bin, "../lib"), filepath.Join(bin, "../lib/ntbnet/lib"), filepath.Join(bin, "../libsdp/lib")}
	}
	for _, d := range dirs {
		path, err := filepath.Abs(filepath.Join(d, library))
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not in %s: install it with cmd/libsdp/install DIR, or name its directory by --library", library, strings.Join(dirs, ", "))
}
