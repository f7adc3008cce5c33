package hostdir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// testCookie is the cookie of the socket that another process publishes.
const testCookie = 1<<40 + 7

// Variables that make the test binary another process of a test.
const (
	roleVariable = "FABRIC_TEST_ROLE"
	argVariable  = "FABRIC_TEST_ARG"
)

func init() {
	role := os.Getenv(roleVariable)
	if role == "" {
		return
	}
	if err := roles[role](os.Getenv(argVariable)); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// roles are the functions that another process can run. Each prints one line.
var roles = map[string]func(arg string) error{
	// open opens the fabric of a base directory and prints its id.
	"open": func(base string) error {
		d, err := Open(In(base, "default"), true)
		if err != nil {
			return err
		}
		id, err := fileID(d)
		fmt.Println(id)
		return err
	},
	// unsupported prints whether the system has no place for a base directory.
	"unsupported": func(base string) error {
		_, err := Open(In(base, "default"), true)
		fmt.Println(errors.Is(err, errors.ErrUnsupported), err)
		return nil
	},
	// member opens a directory that a group shares, the argument, and prints its process
	// number. Then it answers what each cable says, until it is killed.
	"member": func(path string) error {
		d, err := Open(At(path, 0, ""), true)
		if err != nil {
			return err
		}
		process, err := d.ClaimProcess()
		if err != nil {
			return err
		}
		l, err := d.Listen(process)
		if err != nil {
			return err
		}
		fmt.Println(process)
		for {
			c, err := d.Accept(l)
			if err != nil {
				return err
			}
			io.Copy(c, c)
			c.Close()
		}
	},
	// ask opens such a directory and has process 1 answer.
	"ask": func(path string) error {
		d, err := Open(At(path, 0, ""), true)
		if err != nil {
			return err
		}
		c, err := d.Connect(context.Background(), 1, nil)
		if err != nil {
			return err
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		if err := c.CloseWrite(); err != nil {
			return err
		}
		b, err := io.ReadAll(c)
		fmt.Printf("got %q, %v\n", b, err)
		return nil
	},
	// make opens a directory that it makes if it is not there: PATH GROUP OWNERS.
	"make": func(arg string) error {
		w := strings.Fields(arg)
		d, err := Open(At(w[0], 0, w[1], w[2:]...), true)
		if err != nil {
			return err
		}
		defer d.Close()
		if _, err = d.ClaimProcess(); err == nil {
			fmt.Println("made")
		}
		return err
	},
	// hold claims a port, publishes a socket of it, and prints its process number and
	// the port. Then it listens and accepts until it is killed.
	"hold": func(base string) error {
		d, err := Open(In(base, "default"), true)
		if err != nil {
			return err
		}
		process, err := d.ClaimProcess()
		if err != nil {
			return err
		}
		port, err := d.ClaimPort(0)
		if err != nil {
			return err
		}
		if err := d.PublishSocket(port, testCookie); err != nil {
			return err
		}
		l, err := d.Listen(process)
		if err != nil {
			return err
		}
		fmt.Println(process, port)
		for {
			c, err := d.Accept(l)
			if err != nil {
				return err
			}
			fmt.Fprint(c, "hello")
			c.Close()
		}
	},
	// mark hands port 7 of a directory that a group shares over.
	"mark": func(path string) error {
		d, err := Open(At(path, 0, ""), true)
		if err != nil {
			return err
		}
		defer d.Close()
		if _, err = d.ClaimProcess(); err == nil {
			_, err = d.ClaimPort(7)
		}
		if err == nil {
			d.Handover(7)
			fmt.Println("marked")
		}
		return err
	},
	// dial connects to a socket and prints what it receives.
	"dial": func(name string) error {
		c, err := net.Dial("unix", name)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(c)
		fmt.Printf("got %q, %v\n", b, err)
		return nil
	},
	// flock tries to lock a directory exclusively.
	"flock": func(path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("granted")
		}
		return nil
	},
	"stand-in": playStandIn,
	"scarce":   playScarce,
	"umask":    playUmask,
	// listen listens at a socket until it is killed.
	"listen": func(name string) error {
		l, err := net.Listen("unix", name)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		for {
			if _, err := l.Accept(); err != nil {
				return err
			}
		}
	},
}

// fileID identifies the claim file of a Dir.
func fileID(d *Dir) (string, error) {
	var st unix.Stat_t
	err := unix.Fstat(d.file.own, &st)
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), err
}

func identity(t *testing.T, d *Dir) string {
	t.Helper()
	id, err := fileID(d)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// inAll returns the places of a fabric that is called mine, as of one host and of several.
func inAll(base string) []Place {
	return []Place{In(base, "mine"), In(base, "mine@1"), In(base, "mine@2"), In(base, "mine@16")}
}

// process is another process of a test.
type process struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

// start starts exe, a test binary, in a role. The process is killed when the test
// ends.
func start(t *testing.T, exe, role, arg string, attr *syscall.SysProcAttr) *process {
	t.Helper()
	p, err := tryStart(t, exe, role, arg, attr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tryStart is start for a process that the system may not allow.
func tryStart(t *testing.T, exe, role, arg string, attr *syscall.SysProcAttr) (*process, error) {
	t.Helper()
	cmd := exec.Command(exe)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argVariable+"="+arg)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// line returns the one line that the process prints.
func (p *process) line(t *testing.T) string {
	t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the other process printed %q, %v", s, err)
	}
	return strings.TrimSpace(s)
}

// startHolder starts a process of this user in role "hold".
func startHolder(t *testing.T, base string) (p *process, number, port int) {
	t.Helper()
	p = start(t, self(t), "hold", base, nil)
	line := p.line(t)
	if _, err := fmt.Sscan(line, &number, &port); err != nil {
		t.Fatalf("holder: %s", line)
	}
	return p, number, port
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func newBase(t *testing.T) string { return filepath.Join(t.TempDir(), "base") }

func openDir(t *testing.T, base string) *Dir {
	t.Helper()
	d, err := Open(In(base, "default"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// openMember opens the fabric and claims a process number.
func openMember(t *testing.T, base string) (*Dir, int) {
	t.Helper()
	d := openDir(t, base)
	n, err := d.ClaimProcess()
	if err != nil {
		t.Fatal(err)
	}
	return d, n
}

// nobody is a user without rights.
const nobody = 65534

// asNobody returns what it takes to start a process of another user: a copy of the
// test binary that the user can run, and attributes.
func asNobody(t *testing.T) (exe string, attr *syscall.SysProcAttr) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start a process of another user")
	}
	dir, err := os.MkdirTemp("/tmp", "fabric-test-"+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	exe = filepath.Join(dir, "exe")
	if err := os.WriteFile(exe, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, exe} { // whatever the umask is
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return exe, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}
