//go:build !linux

package main

import "os/exec"

// dieWithParent does nothing, since this system cannot do it.
func dieWithParent(*exec.Cmd) {}
