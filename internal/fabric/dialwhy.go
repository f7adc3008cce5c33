package fabric

import (
	"context"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
)

// whyTime is how long it may take to find out why a dial has failed.
const whyTime = 10 * time.Millisecond

// Why returns the error of a dial to a process of this host, with what the kernel says of that process: that it is
// stopped. It is for dials that took too long.
func (f *Fabric) Why(id link.ID, err error) error {
	if f.net.spec.InProcess() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), whyTime)
	defer cancel()
	c, e := f.net.registry.connectTo(ctx, id.Process(), nil) // which a stopped process need not accept
	if e != nil {
		return err
	}
	defer c.Close()
	who, e := c.peer()
	if e != nil {
		return err
	}
	return stopped(who.PID, err)
}

// stopped returns the error of a question to a process, which says so if that is stopped.
func stopped(pid int, err error) error {
	if !hostdir.Stopped(pid) {
		return err
	}
	return fmt.Errorf("pid %d is stopped: kill -CONT %[1]d, or end it: %[2]w", pid, err)
}
