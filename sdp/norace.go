//go:build !race

package sdp

import "github.com/ntbnet/ntbnet/bounce"

func raceRelease(*bounce.Pair) {}
func raceAcquire(*bounce.Pair) {}
