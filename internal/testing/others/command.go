package main

import (
	"context"
	"os/exec"
	"time"
)

// grace is how long what a command has started may take to end after an interrupt.
const grace = 10 * time.Second

// newCommand is exec.CommandContext for a command that starts others: when ctx is done, all
// of them are interrupted.
func newCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = grace
	setGroup(cmd)
	return cmd
}

// wait waits for a command. If ctx is done, what is left of what it has started is killed.
func wait(ctx context.Context, cmd *exec.Cmd) error {
	err := cmd.Wait()
	if ctx.Err() != nil {
		killGroup(cmd)
	}
	return err
}
