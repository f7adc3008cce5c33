package limits

import (
	"fmt"
	"math/bits"
)

// kind is a kind of measurement.
type kind string

const (
	lines  kind = "lines"  // count words to and fro
	filled kind = "filled" // count lines with payload to and fro
	double kind = "double" // count messages of two lines to and fro
	copies kind = "copies" // count pieces through a queue
)

// command is one measurement. Queue and piece are in bytes, and 0 except for
// copies.
type command struct {
	kind         kind
	queue, piece int
	count        uint64
}

// String returns the line that parseCommand parses.
func (c command) String() string {
	return fmt.Sprintf("%s %d %d %d", c.kind, c.queue, c.piece, c.count)
}

func parseCommand(line string) (command, error) {
	var c command
	if _, err := fmt.Sscanf(line, "%s %d %d %d", &c.kind, &c.queue, &c.piece, &c.count); err != nil {
		return c, fmt.Errorf("command %q: %w", line, err)
	}
	switch c.kind {
	case lines, filled, double:
		return c, nil
	case copies:
		if isPower(c.queue) && isPower(c.piece) && c.piece <= c.queue && c.queue <= maxQueue {
			return c, nil
		}
	}
	return c, fmt.Errorf("command %q: out of range", line)
}

func isPower(n int) bool { return n > 0 && bits.OnesCount(uint(n)) == 1 }
