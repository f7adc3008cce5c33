package main

import (
	"fmt"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify tells the service manager something, by systemd's protocol sd_notify. It does nothing if there is no manager.
func notify(state, format string, args ...any) {
	_, _ = sd.SdNotify(false, state+"\n"+fmt.Sprintf(format, args...))
}

func notifyReady(maps int) { notify(sd.SdNotifyReady, "STATUS=serving %d maps", maps) }
func notifyReloading() {
	notify(sd.SdNotifyReloading, "%s", strings.TrimSpace(sd.SdNotifyMonotonicUsec()))
}
func notifyStopping(open int) {
	notify(sd.SdNotifyStopping, "STATUS=waiting for %d connections", open)
}
func notifyAlive() { _, _ = sd.SdNotify(false, sd.SdNotifyWatchdog) }

// watchdog returns when to call notifyAlive. It is nil if the manager does not want that.
func watchdog() <-chan time.Time {
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return nil
	}
	return time.Tick(every / 2)
}
