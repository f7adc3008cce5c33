package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify tells the service manager something, by systemd's protocol sd_notify. It does nothing if there is no manager.
// One that reads nothing keeps it for a second; sd.SdNotify would wait for ever.
func notify(lines ...string) {
	c, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c, strings.Join(lines, "\n"))
}

func notifyReady(maps int) { notify(sd.SdNotifyReady, fmt.Sprintf("STATUS=serving %d maps", maps)) }
func notifyReloading() {
	notify(sd.SdNotifyReloading, strings.TrimSpace(sd.SdNotifyMonotonicUsec()))
}
func notifyStopping(open int) {
	notify(sd.SdNotifyStopping, fmt.Sprintf("STATUS=waiting for %d connections", open))
}
func notifyAlive() { notify(sd.SdNotifyWatchdog) }

// watchdog returns when to call notifyAlive. It is nil if the manager does not want that.
func watchdog() <-chan time.Time {
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return nil
	}
	return time.Tick(every / 2)
}
