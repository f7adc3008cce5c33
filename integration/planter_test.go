//go:build linux

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ntbnet/ntbnet/sdp"
)

// playPlanter has bytes echoed by the server whose address is its first argument, by connections that come and go: again and again
// its second argument. It does so at each question, and then answers how often it finds what the question has in the memory that
// it shares with others.
func playPlanter(p *self) error {
	plant := bytes.Repeat([]byte(p.args[1]), 200<<10/len(p.args[1]))
	stays, err := sdp.Dial("sdp", p.args[0])
	if err != nil {
		return err
	}
	defer stays.Close()
	p.printf("ready")
	return p.answerAll(func(words []string) any {
		for range 4 {
			if err := echoedBack(p.args[0], plant); err != nil {
				return err.Error()
			}
		}
		n, err := inSharedMemory(words[0])
		if err != nil {
			return err.Error()
		}
		return n
	})
}

func echoedBack(address string, out []byte) error {
	c, err := sdp.Dial("sdp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	in := make([]byte, len(out))
	go c.Write(out)
	if _, err := io.ReadFull(c, in); err != nil {
		return err
	}
	if !bytes.Equal(in, out) {
		return errors.New("bytes of others")
	}
	return nil
}

// inSharedMemory returns how often a text is in the mappings of this process that it shares with others.
func inSharedMemory(text string) (n int, err error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil {
			return 0, err
		}
		if mode[3] != 's' {
			continue
		}
		b := make([]byte, to-from)
		if _, err := memory.ReadAt(b, int64(from)); err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		n += bytes.Count(b, []byte(text))
	}
	return n, nil
}
