package fabric

import (
	"fmt"
	"syscall"
)

const (
	// DefaultName is the name of the fabric if the user gives none.
	DefaultName = "default"

	maxName      = 32          // length of a fabric's name in bytes
	maxProcess   = 65535       // process numbers are 1 to maxProcess
	maxPort      = 65535       // ports are 1 to maxPort
	firstFree    = 49152       // port 0 claims a free port from here on
	processBytes = 65536       // more than any process number
	ownerPort    = maxPort + 1 // stands for the ownership of a host's bridges; no listener has it
	portShift    = 17          // bits of the bytes for a port in the claim file: 1 + processBytes fit
)

// checkName refuses names that do not consist of 1 to 32 letters, digits, '_', '.'
// or '-', or that begin with a dot.
func checkName(name string) error {
	ok := len(name) >= 1 && len(name) <= maxName && name[0] != '.'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '.' || c == '-')
	}
	if !ok {
		return fmt.Errorf("fabric: name %q: want 1 to %d letters, digits, '_', '-' or '.', no '.' first: %w",
			name, maxName, syscall.EINVAL)
	}
	return nil
}

// portByte returns the byte of the claim file that claims port.
func portByte(port int) int64 { return int64(port) << portShift }

// holderByte returns the byte which says that process holds port.
func holderByte(port, process int) int64 { return portByte(port) + 1 + int64(process) }
