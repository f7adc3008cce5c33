//go:build linux && (amd64 || arm64)

package ntbkernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ntbnet/ntbnet/ntb"
)

// system is where a machine shows its bridges: the directories /dev and /sys.
type system struct{ dev, sys string }

var thisSystem = system{"/dev", "/sys"}

func (s system) node(address string) string { return filepath.Join(s.dev, "ntb", address) }

// bus returns the directory of the kernel's NTB bus, or what is below it.
func (s system) bus(names ...string) string {
	return filepath.Join(append([]string{s.sys, "bus/ntb/devices"}, names...)...)
}

// class returns the directory of a node in sysfs, or what is below it.
func (s system) class(address string, names ...string) string {
	return filepath.Join(append([]string{s.sys, "class/misc/ntb!" + address}, names...)...)
}

// names returns the names in a directory, in order. One that is not there has none.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("ntbkernel: %w", err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, nil
}

// Find returns the address of this machine's bridge. If there are several, the error lists them; if there is
// none, it says what is missing, and wraps ENODEV.
func Find() (string, error) { return thisSystem.find() }

func (s system) find() (string, error) {
	nodes, err := names(filepath.Join(s.dev, "ntb"))
	switch {
	case err != nil:
		return "", err
	case len(nodes) == 1:
		return nodes[0], nil
	case len(nodes) > 1:
		return "", fmt.Errorf("ntbkernel: this machine has several bridges, name one, as in ntb:%s: %s: %w", nodes[0], strings.Join(nodes, ", "), syscall.EINVAL)
	}
	bridges, err := s.functions()
	switch {
	case err != nil:
		return "", err
	case len(bridges) == 0:
		return "", fmt.Errorf("ntbkernel: this machine has no bridge that a driver has: lspci -nn shows whether there is one; "+
			"then load its driver, ntb_hw_intel, ntb_hw_amd, ntb_hw_switchtec or ntb_hw_epf, and ntb_cdev (modprobe ntb_cdev): %w", syscall.ENODEV)
	}
	return "", s.withoutNode(bridges[0])
}

// withoutNode returns why a bridge has no node.
func (s system) withoutNode(address string) error {
	if _, err := os.Stat(s.bus(address)); err != nil {
		if err := s.withoutDriver(address); err != nil {
			return err
		}
		bridges, err := names(s.bus())
		if err != nil {
			return err
		}
		known := "there are none"
		if len(bridges) > 0 {
			known = "there are " + strings.Join(bridges, ", ")
		}
		return fmt.Errorf("ntbkernel: there is no bridge %s (ls %s, %s; lspci -nn shows whether its driver is missing): %w", address, s.bus(), known, syscall.ENODEV)
	}
	driver, err := os.Readlink(s.bus(address, "driver"))
	switch name := filepath.Base(driver); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("ntbkernel: no module has bridge %s: modprobe ntb_cdev; if it is loaded, dmesg says why it does not take the bridge: %w", address, syscall.ENODEV)
	case err != nil:
		return fmt.Errorf("ntbkernel: %w", err)
	case name != "ntb_cdev":
		return fmt.Errorf("ntbkernel: the module %s has bridge %s: rmmod it, and modprobe ntb_cdev: %w", name, address, syscall.ENODEV)
	}
	return fmt.Errorf("ntbkernel: there is no %s, although ntb_cdev has the bridge: a container needs the node (--device): %w", s.node(address), syscall.ENODEV)
}

// open opens the node of a bridge.
func (s system) open(address string) (*os.File, error) {
	file, err := os.OpenFile(s.node(address), os.O_RDWR, 0)
	if err != nil {
		return nil, s.refused(address, err)
	}
	return file, nil
}

// refused returns why the node of a bridge was not opened, which the kernel says by err.
func (s system) refused(address string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.withoutNode(address)
	case errors.Is(err, syscall.EBUSY):
		holder := cmp.Or(s.holder(address), "fuser "+s.node(address)+" shows it")
		return fmt.Errorf("ntbkernel: bridge %s: %w: %s: %w", address, ntb.ErrInUse, holder, syscall.EBUSY)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ntbkernel: this user may not use %s: be root, or give a group the node by a udev rule, see docs/hardware.md: %w", s.node(address), syscall.EACCES)
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return fmt.Errorf("ntbkernel: bridge %s was removed, or its driver was unloaded: %w", address, syscall.ENODEV)
	}
	return fmt.Errorf("ntbkernel: %w", err)
}

// holder says which process has the node of a bridge, "" if none has or that is unknown.
func (s system) holder(address string) string {
	text, err := os.ReadFile(s.class(address, "holder"))
	pid, e := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || e != nil || pid == 0 {
		return ""
	}
	who := fmt.Sprintf("process %d", pid)
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		who += fmt.Sprintf(" (%s)", strings.TrimSpace(string(name)))
	}
	return who
}
