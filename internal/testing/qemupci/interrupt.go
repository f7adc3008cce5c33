//go:build linux

package qemupci

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
)

// injector writes the messages of interrupts into a machine, by QEMU's qtest protocol.
type injector struct {
	conn net.Conn
	wake chan struct{} // of one element: there is something to send

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
	r := bufio.NewReader(j.conn)
	for range j.wake {
		j.mu.Lock()
		list := j.waiting
		j.waiting = nil
		j.mu.Unlock()
		for _, i := range list {
			if _, err := fmt.Fprintf(j.conn, "writel %#x %#x\n", i.address, i.data); err != nil {
				return err
			}
			answer, err := r.ReadString('\n')
			if err != nil {
				return err
			}
			if !strings.HasPrefix(answer, "OK") {
				return fmt.Errorf("qtest answers %q", answer)
			}
		}
	}
	return nil
}
