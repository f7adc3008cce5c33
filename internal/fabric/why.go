package fabric

import (
	"context"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/link"
)

// whyTime is how long it may take to find out why a dial has failed.
const whyTime = 10 * time.Millisecond

// Why returns the error of a dial to a process of this host, with what the kernel says of that process: that it is
// stopped. It is for dials that took too long.
func (f *Fabric) Why(id link.ID, err error) error {
	if f.spec.InProcess() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), whyTime)
	defer cancel()
	c, who, e := f.connect(ctx, &linkEnd{kind: toProcess, process: id.Process()}) // which a stopped process need not accept
	if e != nil {
		return err
	}
	c.Close()
	return greeting.Stopped(who.PID, err)
}
