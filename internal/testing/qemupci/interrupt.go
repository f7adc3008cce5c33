//go:build linux

package qemupci

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// injector writes the messages of interrupts into a machine, and reads registers, by QEMU's qtest protocol.
type injector struct {
	conn net.Conn
	wake chan struct{} // of one element: there is something to send

	talking sync.Mutex    // held from a command to its answer
	answers *bufio.Reader // guarded by talking

	mu      sync.Mutex
	waiting []interrupt
}

type interrupt struct {
	address uint64
	data    uint32
}

// send has a message written. One that is waiting to be written already is not written twice: the machine's
// interrupt controller could not keep them apart either.
func (j *injector) send(i interrupt) {
	j.mu.Lock()
	if !slices.Contains(j.waiting, i) {
		j.waiting = append(j.waiting, i)
	}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run writes messages until the connection or wake is closed.
func (j *injector) run() error {
	for range j.wake {
		j.mu.Lock()
		list := j.waiting
		j.waiting = nil
		j.mu.Unlock()
		for _, i := range list {
			if _, err := j.ask("writel %#x %#x", i.address, i.data); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask carries out a command, and returns the answer.
func (j *injector) ask(format string, args ...any) (string, error) {
	j.talking.Lock()
	defer j.talking.Unlock()
	if _, err := fmt.Fprintf(j.conn, format+"\n", args...); err != nil {
		return "", err
	}
	line, err := j.answers.ReadString('\n')
	if err != nil {
		return "", err
	}
	answer, ok := strings.CutPrefix(line, "OK")
	if !ok {
		return "", fmt.Errorf("qtest answers %q", line)
	}
	return strings.TrimSpace(answer), nil
}

// read returns what a command that reads a register returns, 0 when QEMU has gone.
func (j *injector) read(command string, address uint64) uint64 {
	answer, _ := j.ask("%s %#x", command, address)
	v, _ := strconv.ParseUint(answer, 0, 64)
	return v
}
