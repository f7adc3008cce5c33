//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the kernel's command line says to the first process of a machine, as variables of
// its environment.
const (
	// functionsVariable has the machine's functions with memory, with semicolons between.
	// Those with ",poll" behind the address are not for VFIO.
	functionsVariable = "NTBNET_FUNCTIONS"
	// modulesVariable has further modules to load, in this order, with semicolons between.
	modulesVariable = "VM_MODULES"
	// playVariable has a role or program and its arguments, with semicolons between. After thenPlay another one
	// follows, when the first has ended well.
	playVariable = "VM_PLAY"
	thenPlay     = "then"
	// addressVariable has the IPv4 address of the machine's network device, whose network has 256. It is
	// empty if there is none.
	addressVariable = "VM_ADDRESS"
)

func init() {
	if os.Getpid() == 1 && os.Getenv(playVariable) != "" {
		ended := make(chan error) // the goroutine as in peer_test.go
		go func() { ended <- runMachine() }()
		fmt.Fprintln(os.Stderr, "error:", <-ended)
		os.Exit(1) // which the kernel does not survive
	}
}

// runMachine is the first process of a virtual machine. It prepares the machine, has another process
// play a role, whose lines go over the second serial port, and turns the machine off. The
// first port is the console.
func runMachine() error {
	if err := initMachine(); err != nil {
		return err
	}
	port, err := openPort("/dev/ttyS1")
	if err != nil {
		return err
	}
	outcome := "ok"
	if err := playAt(port); err != nil {
		outcome = err.Error()
	}
	if _, err := fmt.Fprintln(port, "end:", outcome); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1); err != nil { // until all is sent
		return err
	}
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// playAt has processes play roles or programs, one after the other.
func playAt(port *os.File) error {
	for one := range strings.SplitSeq(os.Getenv(playVariable), ";"+thenPlay+";") {
		if err := playProgram(port, strings.Split(one, ";")); err != nil {
			return err
		}
	}
	return nil
}

// playProgram has processes play a role or program, one after the other, until one ends other than by
// being killed.
func playProgram(port *os.File, words []string) error {
	for {
		role := exec.Command("/proc/self/exe", words[1:]...)
		role.Env = append(os.Environ(), peerVariable+"="+words[0])
		if roles[words[0]] == nil {
			role = exec.Command(words[0], words[1:]...)
		}
		role.Stdin, role.Stdout, role.Stderr = port, port, os.Stderr
		err := role.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
			return err
		}
	}
}

// openPort opens a serial port that carries lines as they are. Control-D ends its input.
func openPort(name string) (*os.File, error) {
	port, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	settings, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("settings of %s: %w", name, err)
	}
	settings.Lflag &^= unix.ECHO | unix.ISIG
	settings.Oflag &^= unix.OPOST
	return port, unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, settings)
}

// initMachine does what systems do when they start.
func initMachine() error {
	for _, m := range []struct{ dir, kind string }{
		{"/proc", "proc"}, {"/sys", "sysfs"}, {"/dev", "devtmpfs"}, {"/tmp", "tmpfs"}, {"/run", "tmpfs"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	if err := os.Chmod("/tmp", 0o1777); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := loadModules(strings.FieldsFunc(os.Getenv(modulesVariable), func(r rune) bool { return r == ';' })); err != nil {
		return err
	}
	if err := networkUp(); err != nil {
		return err
	}
	return bindFunctions()
}

// networkUp gives the machine's network device its address, if the machine has one.
func networkUp() error {
	address, err := netip.ParseAddr(os.Getenv(addressVariable))
	if err != nil {
		return nil
	}
	if err := loadModules(networkModules); err != nil {
		return err
	}
	return interfaceUp("eth0", address)
}

// bindFunctions gives those functions to VFIO that are for it.
func bindFunctions() error {
	loaded := false
	for function := range strings.SplitSeq(os.Getenv(functionsVariable), ";") {
		if function == "" || strings.HasSuffix(function, ",poll") {
			continue
		}
		if !loaded {
			if err := loadModules(vfioModules); err != nil {
				return err
			}
			loaded = true
		}
		if err := bindFunction(function); err != nil {
			return err
		}
	}
	return nil
}

// bindFunction gives a function to vfio-pci, away from the driver that it has. It is for root.
func bindFunction(address string) error {
	dir := filepath.Join("/sys/bus/pci/devices", address)
	if driver, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
		if filepath.Base(driver) == "vfio-pci" {
			return nil
		}
		if err := os.WriteFile(filepath.Join(dir, "driver", "unbind"), []byte(address), 0); err != nil {
			return fmt.Errorf("unbind PCI function %s: %w", address, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "driver_override"), []byte("vfio-pci"), 0); err != nil {
		return err
	}
	if err := os.WriteFile("/sys/bus/pci/drivers_probe", []byte(address), 0); err != nil {
		return fmt.Errorf("bind PCI function %s: %w", address, err)
	}
	if driver, err := os.Readlink(filepath.Join(dir, "driver")); err != nil || !strings.HasSuffix(driver, "/vfio-pci") {
		return fmt.Errorf("vfio-pci did not take PCI function %s: %w", address, syscall.ENODEV)
	}
	return nil
}

// loadModules loads those modules that are not built in. Parameters are behind commas.
func loadModules(modules []string) error {
	for _, m := range modules {
		name, parameters, _ := strings.Cut(m, ",")
		f, err := os.Open(filepath.Join("/modules", path.Base(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), strings.ReplaceAll(parameters, ",", " "), 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("load %s: %w", m, err)
		}
	}
	return nil
}
