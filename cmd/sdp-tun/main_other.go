//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "sdp-tun: it needs Linux")
	os.Exit(2)
}
