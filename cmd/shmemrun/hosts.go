package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/launch"
)

// Values of --map-by, and srun's words for them.
const (
	bySlot, block = "slot", "block"
	byNode, cycle = "node", "cyclic"
)

// placed sets on which host each PE is, and how many hosts and PEs there are.
func (o *options) placed() error {
	var places []int
	switch {
	case o.hostFile == "" && o.hosts == 0:
		return nil
	case o.hostFile == "":
		o.n = cmp.Or(o.n, o.hosts)
		if o.n < o.hosts {
			return fmt.Errorf("-n %d with --hosts %d: each host needs a PE; want fewer hosts, or more PEs", o.n, o.hosts)
		}
		places = evenly(o.n, o.hosts)
	default:
		var err error
		if places, err = readHosts(o.hostFile); err != nil {
			return fmt.Errorf("--hostfile: %w", err)
		}
		o.n = cmp.Or(o.n, len(places))
	}
	if o.mapBy == byNode || o.mapBy == cycle {
		places = inTurn(places)
	}
	for pe := range o.n {
		o.at = append(o.at, places[pe%len(places)])
	}
	o.hosts = slices.Max(o.at) + 1
	if o.hosts < 2 || o.hosts > maxHosts {
		return fmt.Errorf("--hostfile %s: %d hosts have PEs: want 2 to %d", o.hostFile, o.hosts, maxHosts)
	}
	return nil
}

// evenly returns the host of each of n places, in blocks. The first hosts have one place more if n cannot be divided.
func evenly(n, hosts int) (places []int) {
	for host := range hosts {
		count := n / hosts
		if host < n%hosts {
			count++
		}
		places = append(places, slices.Repeat([]int{host}, count)...)
	}
	return places
}

// inTurn returns the places in another order: the first of each host, then the second of each, and so on.
func inTurn(places []int) []int {
	rounds := make([][]int, len(places))
	seen := map[int]int{}
	for _, host := range places {
		rounds[seen[host]] = append(rounds[seen[host]], host)
		seen[host]++
	}
	for _, round := range rounds {
		slices.Sort(round)
	}
	return slices.Concat(rounds...)
}

// readHosts reads a file as mpiexec.hydra has it. A line is NAME for one place on that host, or NAME:COUNT for
// several; # begins a comment. Hosts have numbers from 0 in the order of their names, of which one may be there again.
func readHosts(path string) (places []int, err error) {
	text, err := flags.ReadFile(path)
	if err != nil {
		return nil, err
	}
	numbers := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, count, given := strings.Cut(line, ":")
		n := 1
		if given {
			n, err = strconv.Atoi(count)
		}
		if err != nil || n < 1 || n > launch.MaxPEs || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("%s:%d: %q: want NAME, or NAME:COUNT for 1 to %d PEs", path, i+1, line, launch.MaxPEs)
		}
		if _, ok := numbers[name]; !ok {
			numbers[name] = len(numbers)
		}
		places = append(places, slices.Repeat([]int{numbers[name]}, n)...)
	}
	if len(places) == 0 {
		return nil, errors.New(path + " names no host")
	}
	return places, nil
}
