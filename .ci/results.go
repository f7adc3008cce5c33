// Command results reads what go test -json has printed:
//
//	go run .ci/results.go failed FILE         prints the output of what has failed
//	go run .ci/results.go skipped FILE TESTS  prints a WARNING line for each test that was skipped and whose
//	                                          name matches the regular expression, with its reason
//	go run .ci/results.go slow FILE           prints how long the slowest packages took
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json. See go doc test2json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a build
	Elapsed                       float64
}

// result is a test's, a package's or a build's.
type result struct {
	name, action string
	elapsed      float64
	output       strings.Builder
}

var reason = regexp.MustCompile(`(?m)^ +\S+_test\.go:\d+: (.*)`)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("results:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want what to print, and a file")
	}
	all, other, err := read(args[1])
	if err != nil {
		return err
	}
	switch {
	case args[0] == "failed":
		fmt.Print(other)
		for _, r := range all {
			if r.action == "fail" || r.action == "build-fail" || r.action == "" {
				fmt.Print(r.output.String())
			}
		}
	case args[0] == "slow":
		slices.SortFunc(all, func(a, b *result) int { return int(1000 * (b.elapsed - a.elapsed)) })
		for _, r := range all {
			if r.elapsed >= 20 && !strings.Contains(r.name, " ") {
				fmt.Printf("%4.0f s %s\n", r.elapsed, r.name)
			}
		}
	case args[0] == "skipped" && len(args) == 3:
		tests, err := regexp.Compile(args[2])
		if err != nil {
			return err
		}
		for _, r := range all {
			_, test, ok := strings.Cut(r.name, " ")
			if !ok || r.action != "skip" || !tests.MatchString(test) {
				continue
			}
			if warned := strings.Index(r.output.String(), "WARNING:"); warned >= 0 {
				line, _, _ := strings.Cut(r.output.String()[warned:], "\n")
				fmt.Println(line)
			} else if why := reason.FindStringSubmatch(r.output.String()); why != nil {
				fmt.Printf("WARNING: %s is skipped: %s\n", test, why[1])
			}
		}
	default:
		return fmt.Errorf("%q is not known", args)
	}
	return nil
}

// read returns the results in a file, in the order of their beginnings, and the lines that are not of go test.
func read(path string) (all []*result, other string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	byName := make(map[string]*result)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			other += lines.Text() + "\n"
			continue
		}
		name := strings.TrimSpace(e.Package + e.ImportPath + " " + e.Test)
		r := byName[name]
		if r == nil {
			r = &result{name: name}
			byName[name] = r
			all = append(all, r)
		}
		r.output.WriteString(e.Output)
		switch e.Action {
		case "pass", "fail", "skip", "build-fail":
			r.action, r.elapsed = e.Action, e.Elapsed
		}
	}
	return all, other, lines.Err()
}
