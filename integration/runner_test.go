//go:build linux

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// playRunner starts programs. Each line is JSON: the words of one, perhaps behind variables of its
// environment. They end with it.
func playRunner(p *self) error {
	var started []*exec.Cmd
	defer func() {
		for _, c := range started {
			c.Process.Kill() // an error means that it has ended
			c.Wait()
		}
	}()
	p.printf("ready")
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		var words []string
		if err := json.Unmarshal([]byte(line), &words); err != nil {
			return err
		}
		program := slices.IndexFunc(words, func(w string) bool { return !strings.Contains(w, "=") })
		c := exec.Command(words[program], words[program+1:]...)
		c.Env = append(os.Environ(), words[:program]...)
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		if err := c.Start(); err != nil {
			return err
		}
		started = append(started, c)
		p.printf("started")
	}
}
