//go:build !race

package ring

func (*Link) raceRelease() {}
func (*Link) raceAcquire() {}
