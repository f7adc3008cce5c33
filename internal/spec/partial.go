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

// TopologyName parses the kind and name of a fabric of several hosts from a spec.
// It ignores the options, so node and nodes may be left out. The name may be the path of a
// directory.
func TopologyName(spec string) (kind, name string, err error) {
	rest, _, _ := strings.Cut(spec, "?")
	if kind, _, _ := strings.Cut(rest, ":"); !IsTopology(kind) && kind != BridgeKind {
		return "", "", fmt.Errorf("fabric %q: want one of several hosts, ring:NAME, line:NAME or mesh:NAME: %w", spec, syscall.EINVAL)
	}
	s, err := parseName(rest)
	if err != nil {
		return "", "", err
	}
	return s.Kind, s.Name, nil
}

// ForTopology returns as much of a spec of several hosts as it takes to find them.
func ForTopology(text string) (*Spec, error) {
	kind, name, err := TopologyName(text)
	if err != nil {
		return nil, err
	}
	spec := &Spec{Kind: kind, Name: name, Backend: "shm"}
	if !IsPath(name) {
		return spec, nil
	}
	_, query, _ := strings.Cut(text, "?")
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
