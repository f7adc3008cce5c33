//go:build linux

package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// deputies are the processes that an operator has started, by the names that it gave them.
var deputies = map[string]*deputy{}

// deputy is a process that plays a role beside the operator.
type deputy struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func init() {
	operations["start"] = startDeputy
	operations["ask"] = askDeputy
	operations["kill"] = killDeputy
	operations["signal"] = signalDeputy
	operations["end"] = endDeputy
	operations["map"] = mapNode
}

// startDeputy starts a process with a name, a role and its arguments, and returns its first line. In place of the
// role there may be a program, which writes to the console.
func startDeputy(w []string) (string, error) {
	if roles[w[1]] == nil {
		d := &deputy{cmd: exec.Command(w[1], w[2:]...)}
		d.cmd.Stdout, d.cmd.Stderr = os.Stderr, os.Stderr
		deputies[w[0]] = d
		return "", d.cmd.Start()
	}
	d := &deputy{cmd: exec.Command("/proc/self/exe", w[2:]...)}
	d.cmd.Env = append(os.Environ(), peerVariable+"="+w[1])
	d.cmd.Stderr = os.Stderr
	in, err := d.cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	d.in, d.out = in, bufio.NewScanner(out)
	if err := d.cmd.Start(); err != nil {
		return "", err
	}
	deputies[w[0]] = d
	return d.line()
}

// line returns the next line of the deputy.
func (d *deputy) line() (string, error) {
	if !d.out.Scan() {
		return "", fmt.Errorf("it has ended: %w", errors.Join(d.out.Err(), d.cmd.Wait()))
	}
	return d.out.Text(), nil
}

// askDeputy returns what the deputy of a name answers to a line.
func askDeputy(w []string) (string, error) {
	d := deputies[w[0]]
	if _, err := fmt.Fprintln(d.in, strings.Join(w[1:], " ")); err != nil {
		return "", err
	}
	return d.line()
}

// killDeputy kills the deputy of a name, and returns when it has gone.
func killDeputy(w []string) (string, error) {
	cmd := deputies[w[0]].cmd
	if err := cmd.Process.Kill(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL {
		return "", nil
	}
	return "", fmt.Errorf("it was not killed: %w", err)
}

// signalDeputy sends a signal to the deputy of a name, by its number.
func signalDeputy(w []string) (string, error) {
	n, err := strconv.Atoi(w[1])
	if err != nil {
		return "", err
	}
	return "", deputies[w[0]].cmd.Process.Signal(syscall.Signal(n))
}

// endDeputy ends the input of the deputy of a name, which then ends.
func endDeputy(w []string) (string, error) {
	d := deputies[w[0]]
	if err := d.in.Close(); err != nil {
		return "", err
	}
	return "", d.cmd.Wait()
}

// peerOffset is where a node has the peer's memory, as <linux/ntb_cdev.h> has it.
const peerOffset = 1 << 40

// mapNode maps a page of the peer's memory.
func mapNode(w []string) (string, error) {
	f, err := os.OpenFile(w[0], os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), peerOffset, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return "", err
	}
	return "", unix.Munmap(b)
}
