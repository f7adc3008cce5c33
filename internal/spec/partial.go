package spec

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
)

// ForDirectory returns as much of a spec as it takes to find the directories.
func ForDirectory(text string) (*Spec, error) {
	if kind, _, _ := strings.Cut(text, ":"); IsTopology(kind) {
		return ForTopology(text)
	}
	spec, err := Parse(text)
	if err == nil && spec.Backend == "mem" {
		err = fmt.Errorf("fabric %q: is within one process, and has no directory: %w", text, syscall.EINVAL)
	}
	return spec, err
}

// ForTopology returns as much of a spec of several hosts as it takes to find them: kind and name, and of a directory
// that has a path, who may own it. It ignores other options, so node and nodes may be left out.
func ForTopology(text string) (*Spec, error) {
	rest, query, _ := strings.Cut(text, "?")
	if kind, _, _ := strings.Cut(rest, ":"); !IsTopology(kind) && kind != BridgeKind {
		return nil, fmt.Errorf("fabric %q: want one of several hosts, ring:NAME, line:NAME or mesh:NAME: %w", text, syscall.EINVAL)
	}
	spec, err := parseName(rest)
	if err != nil {
		return nil, err
	}
	if !IsPath(spec.Name) {
		return spec, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("fabric %q: %v: %w", text, err, syscall.EINVAL)
	}
	for _, option := range []string{"group", "owner"} {
		if !values.Has(option) {
			continue
		}
		if err := spec.set(option, values.Get(option)); err != nil {
			return nil, fmt.Errorf("fabric %q: option %s: %v: %w", text, option, err, syscall.EINVAL)
		}
	}
	return spec, nil
}
