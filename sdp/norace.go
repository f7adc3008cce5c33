//go:build !race

package sdp

import "github.com/ntbnet/ntbnet/bounce"

const raceEnabled = false

func raceRelease(*bounce.Pair) {}
func raceAcquire(*bounce.Pair) {}
