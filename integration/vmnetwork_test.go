//go:build linux

package integration

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// vmNetwork is a machine's network device. The zero value is none.
type vmNetwork struct {
	address string     // IPv4
	backend string     // QEMU's, without its id
	socket  string     // a path, if the backend has one
	files   []*os.File // for QEMU, from descriptor 3 on
}

// args are QEMU's.
func (n vmNetwork) args() []string {
	if n.address == "" {
		return nil
	}
	return []string{"-netdev", n.backend + ",id=network", "-device", "virtio-net-pci,netdev=network,addr=10"}
}

// Addresses for documentation, which nobody else has.
const (
	hostAddress    = "198.51.100.1"
	machineAddress = "198.51.100.2"
)

// hostNetwork connects a machine with its host by a TAP device. Another test must not use one meanwhile.
func hostNetwork(t *testing.T) vmNetwork {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "tap")
	t.Cleanup(func() { file.Close() }) // with which the device goes
	request, err := unix.NewIfreq("ntbnet%d")
	require.NoError(t, err)
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	require.NoError(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
	require.NoError(t, interfaceUp(request.Name(), netip.MustParseAddr(hostAddress)))
	return vmNetwork{address: machineAddress, backend: "tap,fd=3", files: []*os.File{file}}
}

// machineNetworks connects two machines. The first must have made the socket before the second starts.
func machineNetworks(t *testing.T) (one, two vmNetwork) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "network")
	network := func(address, role string) vmNetwork {
		return vmNetwork{address: address, backend: "stream," + role + ",addr.type=unix,addr.path=" + socket, socket: socket}
	}
	return network(hostAddress, "server=on"), network(machineAddress, "server=off")
}

// interfaceUp has a network interface work. A valid address becomes its address, in a network of 256.
func interfaceUp(name string, address netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if address.IsValid() {
		if err := setAddress(fd, request, address.As4()); err != nil {
			return fmt.Errorf("address of %s: %w", name, err)
		}
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// setAddress sets the address of the interface that a request names. The mask comes second, since the
// address brings one of its own.
func setAddress(fd int, request *unix.Ifreq, address [4]byte) error {
	if err := request.SetInet4Addr(address[:]); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, request); err != nil {
		return err
	}
	if err := request.SetInet4Addr([]byte{255, 255, 255, 0}); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFNETMASK, request)
}
