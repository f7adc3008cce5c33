//go:build linux && (amd64 || arm64)

package ntbkernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// drivers are the kernel's drivers of bridges, by the vendor of the PCI function, with the devices that they take in
// Linux 6.12. Switchtec's are all of that vendor whose class is "other bridge".
var drivers = map[string]struct{ name, devices string }{
	"0x8086": {"ntb_hw_intel", "0x3725 0x3726 0x3727 0x3c0d 0x3c0e 0x3c0f 0x0e0d 0x0e0e 0x0e0f 0x2f0d 0x2f0e 0x2f0f 0x6f0d 0x6f0e 0x6f0f 0x201c 0x347e 0x0db4"},
	"0x1022": {"ntb_hw_amd", "0x145b 0x148b 0x14c0 0x14c3 0x155a"},
	"0x1d94": {"ntb_hw_amd", "0x145b"},
	"0x11f8": {"ntb_hw_switchtec", ""},
	"0x111d": {"ntb_hw_idt", "0x8091 0x808f 0x8088 0x8092 0x8090 0x808e 0x808c 0x808a"},
	"0x104c": {"ntb_hw_epf", "0xb00d"},
	"0x1957": {"ntb_hw_epf", "0x0809"},
}

const otherBridge = "0x068000"

// pci returns what is below the directory of a PCI function.
func (s system) pci(names ...string) string {
	return filepath.Join(append([]string{s.sys, "bus/pci/devices"}, names...)...)
}

// read returns the text of a file, "" if it cannot be read.
func read(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

// target returns the last name in a symbolic link, "" if there is none.
func target(path string) string {
	name, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(name)
}

// driverFor returns the driver that takes a PCI function as a bridge, "" if none does.
func (s system) driverFor(address string) string {
	driver := drivers[read(s.pci(address, "vendor"))]
	if driver.devices == "" && read(s.pci(address, "class")) == otherBridge ||
		slices.Contains(strings.Fields(driver.devices), read(s.pci(address, "device"))) {
		return driver.name
	}
	return ""
}

// Bridges returns the bridges of this machine, as it shows them to every user: those on the kernel's NTB bus, and PCI
// functions that a driver would bring there. It opens none.
func Bridges() ([]Bridge, error) { return thisSystem.bridges() }

func (s system) bridges() ([]Bridge, error) {
	addresses, err := s.functions()
	if err != nil {
		return nil, err
	}
	var all []Bridge
	for _, a := range addresses {
		all = append(all, Bridge{Address: a, About: s.about(a), Err: s.unusable(a)})
	}
	return all, nil
}

// functions returns the addresses of the bridges, in order.
func (s system) functions() ([]string, error) {
	all, err := names(s.bus())
	if err != nil {
		return nil, err
	}
	functions, err := names(s.pci())
	if err != nil {
		return nil, err
	}
	for _, f := range functions {
		if s.driverFor(f) != "" {
			all = append(all, f)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// about describes a bridge.
func (s system) about(address string) string {
	var about []string
	say := func(format, text string) {
		if text != "" {
			about = append(about, fmt.Sprintf(format, text))
		}
	}
	say("%s", strings.ReplaceAll(read(s.pci(address, "vendor"))+":"+read(s.pci(address, "device")), "0x", ""))
	say("driver %s", target(s.pci(address, "driver")))
	say("module %s", target(s.bus(address, "driver")))
	say("link %s", read(s.class(address, "link")))
	say("held by %s", s.holder(address))
	say("%s", s.bars(address))
	switch domain := read(s.pci(address, "iommu_group/type")); domain {
	case "":
		say("%s", "no IOMMU")
	case "identity":
		say("IOMMU domain %s, which confines nothing", domain)
	default:
		say("IOMMU domain %s", domain)
	}
	return strings.Join(about, ", ")
}

// bars describes a function's memory BARs.
func (s system) bars(address string) string {
	const memory = 0x200 // IORESOURCE_MEM
	var all []string
	for i, line := range strings.Split(read(s.pci(address, "resource")), "\n") {
		var first, last, flags uint64
		if n, _ := fmt.Sscanf(line, "%v %v %v", &first, &last, &flags); n < 3 || i > 5 || flags&memory == 0 || last <= first {
			continue
		}
		size := fmt.Sprintf("%d KiB", (last-first+1)>>10)
		if last-first >= 1<<20-1 {
			size = fmt.Sprintf("%d MiB", (last-first+1)>>20)
		}
		all = append(all, fmt.Sprintf("BAR%d %s", i, size))
	}
	return strings.Join(all, ", ")
}

// unusable returns why this process cannot use a bridge now, or nil.
func (s system) unusable(address string) error {
	err := unix.Access(s.node(address), unix.R_OK|unix.W_OK)
	if err != nil {
		return s.refused(address, err)
	}
	state := State{Peer: moduleWord | moduleABI} // the kernel's log says more of the peer
	switch read(s.class(address, "link")) {
	case "down":
	case "up":
		state.LinkUp = true
	case "no window":
		state.LinkUp, state.NoWindow = true, true
	case "peer has no window":
		state.LinkUp, state.PeerNoWindow = true, true
	default:
		return nil
	}
	return state.missing(address)
}

// withoutDriver returns why a function is not on the NTB bus. It is nil unless the function is a bridge.
func (s system) withoutDriver(address string) error {
	driver := s.driverFor(address)
	if driver == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(s.sys, "module", driver)); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ntbkernel: %s is loaded, and does not drive bridge %s: dmesg says why; docs/hardware.md has the settings of the firmware: %w", driver, address, unix.ENODEV)
	}
	return fmt.Errorf("ntbkernel: no driver has bridge %s: modprobe %s; if there is no such module, this kernel is without CONFIG_NTB or that driver: docs/hardware.md says which have them: %w", address, driver, unix.ENODEV)
}
