//go:build !linux

package meter

import "time"

func cpu() CPU { return CPU{} }

func memory() int64 { return 0 }

// MachineBusy returns how long the processors of the machine have worked. ok is false where the
// system does not say.
func MachineBusy() (busy time.Duration, ok bool) { return 0, false }
