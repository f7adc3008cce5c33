package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/ntbnet/ntbnet/"

// event is a line of go test -json. See go doc test2json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a build
	Elapsed                       float64
}

// result is a test's, a package's or a build's.
type result struct {
	name, action string
	seconds      float64
	output       strings.Builder
}

var (
	reason  = regexp.MustCompile(`(?m)^ +\S+_test\.go:\d+: (.*)`)
	warning = regexp.MustCompile(`(?m)^WARNING:.*`)
)

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
		slices.SortStableFunc(all, func(a, b *result) int { return cmp.Compare(b.seconds, a.seconds) })
		for _, r := range all {
			if pkg, test, of := strings.Cut(r.name, " "); of && r.seconds > 3 && !strings.Contains(test, "/") {
				fmt.Printf("%.0f\t%s %s\n", r.seconds, strings.TrimPrefix(pkg, module), test)
			}
		}
	case args[0] == "skipped" && len(args) == 3:
		tests, err := regexp.Compile(args[2])
		if err != nil {
			return err
		}
		for _, line := range warning.FindAllString(other, -1) {
			fmt.Println(line)
		}
		for _, r := range all {
			warnings := warning.FindAllString(r.output.String(), -1)
			for _, line := range warnings {
				fmt.Println(line)
			}
			_, test, _ := strings.Cut(r.name, " ")
			why := reason.FindStringSubmatch(r.output.String())
			if r.action == "skip" && warnings == nil && why != nil && tests.MatchString(test) {
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
			r.action, r.seconds = e.Action, e.Elapsed
		}
	}
	return all, other, lines.Err()
}
