//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "ntb-ivshmem-server: it needs Linux")
	os.Exit(2)
}
