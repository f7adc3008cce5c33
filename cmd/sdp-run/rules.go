//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/ntbnet/ntbnet/internal/flags"
)

// maxRules is how many the library has room for.
const maxRules = 256

// readRules reads a file of rules, and returns them as the library takes them: see preload/rules.c.
func readRules(file string) (string, error) {
	text, err := flags.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--rules: %w", err)
	}
	var all []string
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		rule, err := parseRule(words)
		if err != nil {
			return "", fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		all = append(all, rule)
	}
	if len(all) > maxRules {
		return "", fmt.Errorf("%s: %d rules, and there is room for %d", file, len(all), maxRules)
	}
	return strings.Join(all, ";"), nil
}

func parseRule(words []string) (string, error) {
	if len(words) != 5 {
		return "", fmt.Errorf("want WAY END PROGRAM ADDRESS PORTS, as in: tcp both * * 22")
	}
	way, ok := map[string]string{"sdp": "s", "tcp": "t"}[words[0]]
	if !ok {
		return "", fmt.Errorf("way %q: want sdp or tcp", words[0])
	}
	end, ok := map[string]string{"connect": "c", "accept": "a", "both": "b"}[words[1]]
	if !ok {
		return "", fmt.Errorf("end %q: want connect, accept or both", words[1])
	}
	if _, err := path.Match(words[2], ""); err != nil || len(words[2]) > 255 || strings.Contains(words[2], ";") {
		return "", fmt.Errorf("program %q: want the name of a program, or a pattern as in redis-*", words[2])
	}
	address := "*/0"
	if words[3] != "*" {
		p, err := netip.ParsePrefix(words[3])
		if a, e := netip.ParseAddr(words[3]); e == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		}
		if err != nil {
			return "", fmt.Errorf("address %q: want *, an IP address, or one with its bits, as in 127.0.0.0/8", words[3])
		}
		address = p.String()
	}
	first, last, ok := strings.Cut(words[4], "-")
	if words[4] == "*" {
		first, last, ok = "0", "65535", true
	}
	if !ok {
		last = first
	}
	a, err := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || a > b {
		return "", fmt.Errorf("ports %q: want *, a port, or two as in 8000-8999", words[4])
	}
	return fmt.Sprintf("%s %s %s %s %d-%d", way, end, words[2], address, a, b), nil
}
