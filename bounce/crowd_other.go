//go:build !unix

package bounce

func involuntarySwitches() int64 { return 0 }
