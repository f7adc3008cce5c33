package benchmarks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each of several checkouts has its turn, and a command without one that is new says how to call it.
func TestRunTakesSeveralCheckouts(t *testing.T) {
	run := func(args ...string) (string, error) {
		cmd := exec.Command("./run", append(args, "-bench", "Crossover", "-benchtime=1x")...)
		cmd.Env = append(os.Environ(), "LC_ALL=C", "OUT="+filepath.Join(t.TempDir(), "out"), "ROUNDS=2", "BENCHSTAT=echo")
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	text, err := run("..", "..", "..")
	const says = "round 001 of 2: old\nround 001 of 2: new\nround 001 of 2: new2\nround 001 of 2: again\n" +
		"round 002 of 2: again\nround 002 of 2: new2\nround 002 of 2: new\nround 002 of 2: old\n" +
		"old=old.txt new=new.txt new2=new2.txt again=again.txt\n"
	if err != nil || text != says {
		t.Errorf("%v\n%s", err, text)
	}
	text, err = run("..", filepath.Join(t.TempDir(), "none"))
	if err == nil || strings.Count(text, "\n") != 1 || !strings.Contains(text, "No such file or directory") {
		t.Errorf("a checkout that is not there: %v\n%s", err, text)
	}
	if text, err := run(".."); err == nil || !strings.Contains(text, "run OLD NEW...") {
		t.Errorf("%v\n%s", err, text)
	}
}

// The same command with more rounds adds to the rounds of the first one.
func TestRunGoesOn(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	run := func(rounds, bench string) (string, error) {
		cmd := exec.Command("./run", "..", "..", "-bench", bench, "-benchtime=1x")
		cmd.Env = append(os.Environ(), "OUT="+out, "ROUNDS="+rounds, "BENCHSTAT=echo")
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	for _, c := range []struct{ rounds, says string }{
		{"1", "round 001 of 1: old\nround 001 of 1: new\nround 001 of 1: again\n"},
		{"2", "round 002 of 2: again\nround 002 of 2: new\nround 002 of 2: old\n"},
		{"2", ""},
	} {
		text, err := run(c.rounds, "Crossover")
		if err != nil || text != c.says+"old=old.txt new=new.txt again=again.txt\n" {
			t.Fatalf("%s rounds: %v\n%s", c.rounds, err, text)
		}
	}
	all, err := os.ReadFile(filepath.Join(out, "again.txt"))
	if err != nil || strings.Count(string(all), "BenchmarkCrossover") != 2 {
		t.Errorf("%v\n%s", err, all)
	}
	if text, err := run("2", "Idle"); err == nil || !strings.Contains(text, "other checkouts or flags") {
		t.Errorf("%v\n%s", err, text)
	}
}
