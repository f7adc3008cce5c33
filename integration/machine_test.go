//go:build linux

package integration

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/ivshmem"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/ntbnet/ntbnet/internal/testing/qemupci"
	"github.com/stretchr/testify/require"
)

// function returns the address that a machine's memory has, from 0 on.
func function(i int) string { return fmt.Sprintf("0000:00:%02x.0", 3+i) }

// vmSystem is what virtual machines start from.
type vmSystem struct {
	qemu, kernel, initrd string
	iommu                string              // a device of QEMU's, or ""
	processors           int                 // 0 is 1
	variables            []string            // NAME=value, for all processes of the machine
	modules              []string            // to load in this order, with parameters behind commas
	devices              []string            // further devices of QEMU's
	models               []pcimodel.Function // further functions of the machine
	network              vmNetwork
}

// needMatrix is needVM for what is too long for each run of all tests.
func needMatrix(t *testing.T, files map[string]string) vmSystem {
	t.Helper()
	wantMatrix(t)
	return needVM(t, files)
}

// wantMatrix skips the test if needMatrix does, before anything is built for it.
func wantMatrix(t *testing.T) {
	t.Helper()
	if os.Getenv("NTBNET_VM") != "all" {
		t.Skip("NTBNET_VM=all runs it")
	}
}

// wantVM is wantMatrix for needVM.
func wantVM(t *testing.T) {
	t.Helper()
	if os.Getenv("NTBNET_VM") == "" {
		t.Skip("NTBNET_VM=1 runs virtual machines; .ci/vm-kernel gets their kernels")
	}
}

// needVM skips the test unless NTBNET_VM is set. With it, what is missing is a failure. Machines have
// files too, copies of those of the host, by the names that they have in the machine.
func needVM(t *testing.T, files map[string]string) vmSystem {
	t.Helper()
	return needVMOf(t, "6.12", files)
}

// needVMOf is needVM for a kernel of a given version.
func needVMOf(t *testing.T, version string, files map[string]string) vmSystem {
	t.Helper()
	wantVM(t)
	qemu, err := exec.LookPath("qemu-system-x86_64")
	require.NoError(t, err, "NTBNET_VM is set")
	dir := os.Getenv(kernelsVariable)
	if dir == "" {
		dir = ciCommand(t, "vm-kernel")
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinu[xz]-"+version+".*")) // vmlinux is first, if it is there
	require.NoError(t, err)
	require.NotEmpty(t, images, "kernels %s in %s", version, dir)
	s := vmSystem{qemu: qemu, kernel: images[0], initrd: filepath.Join(t.TempDir(), "initrd"), iommu: "intel-iommu,intremap=on"}
	_, release, _ := strings.Cut(filepath.Base(s.kernel), "-")
	disk := modulesOf(t, filepath.Join(dir, "lib", "modules", release))
	maps.Copy(disk, files)
	disk["init"] = testsOf(t, ".")
	writeInitrd(t, s.initrd, disk)
	return s
}

// kernelsVariable has the directory of other kernels than those of .ci/vm-kernel, for .ci/module too. .ci/debug-kernel
// makes one.
const kernelsVariable = "NTBNET_KERNELS"

// ciCommand runs a script of CI's, and returns the line that it prints.
func ciCommand(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command("../.ci/"+name, args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	require.NoError(t, err, "%q: %s", cmd.Args, &log)
	return strings.TrimSpace(string(out))
}

// builtForVM are programs that need no libraries, by what they were built from.
var builtForVM = map[string]string{}

// testsOf returns the tests of the package in a directory as such a program.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	return buildForVM(t, dir, "test", "-c")
}

// programOf returns the program in a directory as such a program.
func programOf(t *testing.T, dir string) string {
	t.Helper()
	return buildForVM(t, dir, "build")
}

func buildForVM(t *testing.T, dir string, command ...string) string {
	t.Helper()
	from := fmt.Sprint(dir, command)
	if name, ok := builtForVM[from]; ok {
		return name
	}
	name := filepath.Join(programs, fmt.Sprintf("vm%d", len(builtForVM)))
	cmd := exec.Command("go", append(command, "-ldflags=-s -w", "-o", name, ".")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%q: %s", cmd.Args, out)
	builtForVM[from] = name
	return name
}

// memory starts a server of a machine's memory and returns its socket.
func memory(t *testing.T) string {
	t.Helper()
	return memoryFor(t, 2)
}

// memoryFor is memory for a number of clients.
func memoryFor(t *testing.T, peers int) string {
	t.Helper()
	return serveMemory(t, ivshmem.Options{Size: 16 << 20, Peers: peers, Vectors: 1})
}

// serveMemory starts a server, and returns its socket.
func serveMemory(t *testing.T, o ivshmem.Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memory")
	s, err := ivshmem.NewServer(o)
	require.NoError(t, err)
	ln, err := unixsock.ListenAs(context.Background(), path, unixsock.Rights{UID: -1, GID: -1})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close(); <-done })
	return path
}

// vm is a virtual machine that plays a role.
type vm struct {
	*peer
	console string // a file
	started time.Time
	models  *qemupci.Machine // nil without
	served  chan error       // what Serve of models returns
}

// vmMemory is a machine's memory, in MiB.
const vmMemory = 512

// addModels adds models to a machine that has some functions before, and some files.
func (v *vm) addModels(t *testing.T, args []string, files []*os.File, before int, models []pcimodel.Function) ([]string, []*os.File) {
	t.Helper()
	var err error
	v.models, err = qemupci.New(vmMemory, models...)
	require.NoError(t, err)
	v.served = make(chan error, 1)
	t.Cleanup(func() { // when QEMU was killed, if it was started
		if v.peer != nil {
			require.NoError(t, <-v.served)
		}
	})
	return append(args, v.models.Args(3+len(files), 3+before)...), slices.Concat(files, v.models.Files())
}

// startVM starts a machine with memories, in the order of their functions: sockets, or files of 16 MiB with "file:"
// before, and with ",poll" behind if the machine is not to use VFIO.
func (s vmSystem) startVM(t *testing.T, memories []string, play ...string) *vm {
	t.Helper()
	v := &vm{console: filepath.Join(t.TempDir(), "console"), started: time.Now()}
	args := []string{s.qemu, "-machine", "q35,accel=tcg", "-cpu", "qemu64", "-smp", fmt.Sprint(max(1, s.processors)), "-m", fmt.Sprint(vmMemory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:" + v.console, "-serial", "stdio",
		"-kernel", s.kernel, "-initrd", s.initrd}
	if s.iommu != "" {
		args = append(args, "-device", s.iommu)
	}
	var functions []string
	for i, m := range memories {
		path, _, polls := strings.Cut(m, ",")
		if file, ok := strings.CutPrefix(path, "file:"); ok {
			args = append(args, "-object", fmt.Sprintf("memory-backend-file,id=memory%d,share=on,mem-path=%s,size=%d", i, file, fileSize),
				"-device", fmt.Sprintf("ivshmem-plain,memdev=memory%d,addr=%d", i, 3+i))
		} else {
			args = append(args, "-chardev", fmt.Sprintf("socket,path=%s,id=memory%d", path, i),
				"-device", fmt.Sprintf("ivshmem-doorbell,chardev=memory%d,vectors=1,addr=%d", i, 3+i))
		}
		functions = append(functions, function(i)+map[bool]string{true: ",poll"}[polls])
	}
	for _, d := range s.devices {
		args = append(args, "-device", d)
	}
	args = append(args, s.network.args()...)
	files := s.network.files
	if len(s.models) > 0 {
		args, files = v.addModels(t, args, files, len(memories), s.models)
	}
	loglevel := 4
	if os.Getenv(kernelsVariable) != "" {
		loglevel = 5 // what lockdep reports are warnings
	}
	args = append(args, "-append", strings.Join(append([]string{
		fmt.Sprintf("console=ttyS0 quiet loglevel=%d panic=-1 no_timer_check mitigations=off intel_iommu=on", loglevel),
		functionsVariable + "=" + strings.Join(functions, ";"),
		modulesVariable + "=" + strings.Join(s.modules, ";"),
		playVariable + "=" + strings.Join(play, ";"),
		addressVariable + "=" + s.network.address,
	}, s.variables...), " "))
	v.peer = startPeer(t, "vm", nil, func(c *exec.Cmd) {
		c.Path, c.Args, c.ExtraFiles = s.qemu, args, files
	})
	v.guard = 5 * testTimeout // an emulated processor is slow
	if v.models != nil {
		go func() { v.served <- v.models.Serve() }()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the console of %q:\n%s", play, v.log())
		}
	})
	return v
}

func (v *vm) log() []byte {
	b, _ := os.ReadFile(v.console) // for people
	return bytes.TrimSpace(b)
}

// ready waits until the role says that it is.
func (v *vm) ready() {
	v.t.Helper()
	require.Equal(v.t, "ready", v.readLine())
	v.t.Logf("accel=tcg: ready %v after QEMU was started", time.Since(v.started).Round(time.Millisecond))
}

// end ends the role's input. The machine turns itself off, after its role had nothing to complain of.
func (v *vm) end() {
	v.t.Helper()
	_, err := v.in.Write([]byte{4}) // Control-D
	require.NoError(v.t, err)
	require.Equal(v.t, "end: ok", v.readLine())
	v.off()
}

// kernelFault is how the kernel reports its own faults on the console.
var kernelFault = regexp.MustCompile(`(?m)^(\[[ .0-9]*\] )?(BUG|kernel BUG|WARNING|UBSAN|INFO: trying).*`)

// off waits until the machine is off. Its kernel has reported no fault.
func (v *vm) off() {
	v.t.Helper()
	v.wait()
	if !v.cmd.ProcessState.Success() {
		v.t.Fatalf("vm has ended: %v", v.cmd.ProcessState) // .ci/run looks for it
	}
	require.Empty(v.t, kernelFault.FindAllString(string(v.log()), -1))
}
