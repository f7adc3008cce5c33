//go:build linux

package integration

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/doctor"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// report is what a machine's operator answers.
type report struct{ Value, Error string }

// operations are what an operator does, by name. The words of the command follow the name.
var operations = map[string]func(w []string) (string, error){
	"load":   func(w []string) (string, error) { return "", loadModules([]string{w[0] + ".ko" + rest(w)}) },
	"unload": func(w []string) (string, error) { return "", unix.DeleteModule(w[0], 0) },
	"read": func(w []string) (string, error) {
		b, err := os.ReadFile(w[0])
		return strings.TrimSpace(string(b)), err
	},
	"write": func(w []string) (string, error) { return "", writeWhole(w[0], []byte(strings.Join(w[1:], " "))) },
	"fill":  fillFile,
	"sum":   sumFile,
	"list":  listFiles,
	"up":    func(w []string) (string, error) { return "", interfaceUp(w[0], netip.MustParseAddr(w[1])) },
	"ping":  ping,
	"log":   kernelLog,
	"kexec": startKernel,
	"run":   runProgram,
	"examine": func([]string) (string, error) {
		var found []string
		for _, c := range doctor.Run(context.Background(), "mem:doctor").Checks {
			if c.Name == "bridge" {
				found = append(found, c.Found+c.Remedy)
			}
		}
		return strings.Join(found, "\n"), nil
	},
}

// rest returns the parameters of a module.
func rest(w []string) string {
	if len(w) == 1 {
		return ""
	}
	return "," + strings.Join(w[1:], ",")
}

// playOperator operates a machine: it carries out commands.
func playOperator(p *self) error {
	if err := unix.Mount("debugfs", "/sys/kernel/debug", "debugfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount debugfs: %w", err)
	}
	p.printf("ready")
	return p.answerAll(func(w []string) any {
		value, err := operations[w[0]](w[1:])
		if err != nil {
			return report{Error: err.Error()}
		}
		return report{Value: value}
	})
}

// errStuck reports a call of the kernel's that does not return.
var errStuck = errors.New("it does not return")

// writeWhole writes by one call of the kernel's. Some files have such calls wait for an event.
func writeWhole(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		_, err := f.Write(b)
		written <- errors.Join(err, f.Close())
	}()
	select {
	case err := <-written:
		return err
	case <-time.After(testTimeout / 2):
		return errStuck
	}
}

// fillFile writes a number of bytes that follow from a seed.
func fillFile(w []string) (string, error) {
	n, _ := strconv.Atoi(w[1])
	seed, _ := strconv.ParseUint(w[2], 10, 64)
	b := make([]byte, n)
	var key [32]byte
	key[0] = byte(seed)
	_, _ = rand.NewChaCha8(key).Read(b)
	f, err := os.OpenFile(w[0], os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.Write(b)
	return fmt.Sprintf("%x", sha256.Sum256(b)), err
}

// sumFile returns the sum of the first bytes of a file.
func sumFile(w []string) (string, error) {
	n, _ := strconv.Atoi(w[1])
	f, err := os.Open(w[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := io.ReadFull(f, b); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(b)), nil
}

// listFiles returns how many files match a pattern.
func listFiles(w []string) (string, error) {
	names, err := filepath.Glob(w[0])
	return strconv.Itoa(len(names)), err
}

// ping sends a number of echo requests with so many bytes to an address, each when the one before was answered.
func ping(w []string) (string, error) {
	count, _ := strconv.Atoi(w[1])
	size, _ := strconv.Atoi(w[2])
	conn, err := net.DialIP("ip4:icmp", nil, &net.IPAddr{IP: net.ParseIP(w[0])})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	request := make([]byte, 8+size)
	request[0] = 8 // echo
	for i := range size {
		request[8+i] = byte(i)
	}
	reply := make([]byte, 1<<16)
	for seq := range count {
		request[6], request[7] = byte(seq>>8), byte(seq)
		request[2], request[3] = 0, 0
		sum := checksum(request)
		request[2], request[3] = byte(sum>>8), byte(sum)
		if err := conn.SetDeadline(time.Now().Add(testTimeout / 2)); err != nil {
			return "", err
		}
		if _, err := conn.Write(request); err != nil {
			return "", err
		}
		for {
			n, _, err := conn.ReadFromIP(reply) // without the header, which Read has
			if err != nil {
				return "", fmt.Errorf("reply %d: %w", seq, err)
			}
			if n == len(request) && reply[0] == 0 && string(reply[6:n]) == string(request[6:]) {
				break
			}
		}
	}
	return "", nil
}

// checksum returns the sum of an ICMP message.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// kernelLog returns the kernel's log from the first process on.
func kernelLog([]string) (string, error) {
	b := make([]byte, 1<<18)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, b)
	if err != nil {
		return "", err
	}
	_, modules, _ := strings.Cut(string(b[:n]), "Run /init")
	return modules, nil
}

// operate has the machine's operator carry out a command.
func (v *vm) operate(format string, args ...any) (string, error) {
	v.t.Helper()
	var o report
	v.askFor(fmt.Sprintf(format, args...), &o)
	if o.Error != "" {
		return "", fmt.Errorf("%s: %s", fmt.Sprintf(format, args...), o.Error)
	}
	return o.Value, nil
}

// must is operate for what does not fail.
func (v *vm) must(format string, args ...any) string {
	v.t.Helper()
	value, err := v.operate(format, args...)
	require.NoError(v.t, err)
	return value
}

// showLog has the kernel's log in the test's if that has failed.
func (v *vm) showLog(t *testing.T) {
	if t.Failed() {
		t.Logf("the kernel's log:\n%s", v.must("log"))
	}
}
